#include "tools/common/command_hints.h"

#include <span>
#include <string_view>

#include "engine/base/strings.h"

namespace thermocline::tools {
namespace {

struct OtherName {
  std::string_view theirs, hint;
};

constexpr std::string_view kServe = "`thermoclined MODEL` serves a model",
                           kModel = "the model is named without an option";

// Commands and options of Ollama, llama.cpp and LM Studio.
constexpr OtherName kCommands[] = {
    {"serve", kServe},
    {"server", kServe},
    {"start", kServe},
    {"chat", "`thermocline run MODEL` is a chat"},
    {"show", "`thermocline inspect MODEL` shows a file"},
    {"quantize", "`thermocline convert MODEL OUT --quantize q4_k` quantises"},
    {"perplexity", "`thermocline eval MODEL --text FILE` measures perplexity"},
    {"get", "`thermocline pull NAME` fetches a model"},
    {"ls", "`thermocline list` shows the models on this machine"},
    {"ps", "`GET /v1/status` of the daemon says what it serves"},
};
constexpr OtherName kOptions[] = {
    {"--temp", "did you mean --temperature?"},
    {"-c", "did you mean --context?"},
    {"--ctx-size", "did you mean --context?"},
    {"-t", "did you mean --threads?"},
    {"-ngl", "did you mean --hot-memory?"},
    {"--n-gpu-layers", "did you mean --hot-memory?"},
    {"-md", "did you mean --draft?"},
    {"-ctk", "did you mean --kv-type?"},
    {"-ctv", "did you mean --kv-type?"},
    {"--n-predict", "did you mean --max-tokens?"},
    {"-m", kModel},
    {"--model", kModel},
};

std::string HintOfNearest(const std::string& name, const std::vector<std::string>& known) {
  const std::string nearest = base::NearestName(name, known);
  return nearest.empty() ? "" : StrCat("did you mean ", nearest, "?");
}

std::string HintFrom(std::span<const OtherName> others, const std::string& name,
                     const std::vector<std::string>& known) {
  for (const OtherName& other : others)
    if (other.theirs == name) return std::string(other.hint);
  return HintOfNearest(name, known);
}

}  // namespace

std::string HintForCommand(const std::string& name, const std::vector<std::string>& known) {
  return HintFrom(kCommands, name, known);
}

std::string HintForOption(const std::string& name, const std::vector<std::string>& known) {
  return HintFrom(kOptions, name, known);
}

std::string HintForPassedOption(const std::string& name, const std::vector<std::string>& known) {
  const std::string hint = HintOfNearest(name, known);
  return hint.empty() ? "options of the program stand behind --" : hint;
}

}  // namespace thermocline::tools
