// `thermocline`: the command line.
#include <cstdio>

#include "engine/base/log.h"
#include "engine/base/out_of_memory.h"
#include "engine/base/strings.h"
#include "tools/common/command_line.h"
#include "tools/common/console.h"

using namespace thermocline::tools;  // NOLINT: this file is only the table below

namespace {

int Main(int argc, char** argv) {
  CommandLine line(
      "thermocline", "thermocline " THERMOCLINE_VERSION,
      "Thermocline: run, inspect and measure language models on one machine.\n"
      "MODEL is a GGUF file, a llama2.c .bin, a Hugging Face folder, a built-in model "
      "(tidepool, tidepool-draft, tidepool-experts), or a name that `thermocline pull` takes.");
  struct Entry {
    const char* name;
    const char* help;
    Command (*add)(const OptionSet&);
  };
  static constexpr Entry kEntries[] = {
      {"run", "Generate text, or chat when no prompt is given", AddRun},
      {"pull", "Fetch a model from the Hugging Face hub, Ollama's registry or an address", AddPull},
      {"list", "Show the models that are on this machine, and how to serve each", AddList},
      {"import", "The same as list: models of other programs are served in place", AddList},
      {"rm", "Delete a model that pull has fetched", AddRemove},
      {"ps", "Show the models of a running server, and which of them are loaded", AddPs},
      {"launch", "Run an agent (Claude Code, Codex, ...) with a model that is served here",
       AddLaunch},
      {"inspect", "Show what a model file holds", AddInspect},
      {"convert", "Write a model as GGUF, quantised if asked", AddConvert},
      {"imatrix", "Measure on a text how much each column of a matrix matters", AddImatrix},
      {"tokenize", "Turn text on standard input into token ids, or back", AddTokenize},
      {"template", "Render a chat template for the messages on standard input", AddTemplate},
      {"bench", "Measure prefill and decode speed beside the machine's read bandwidth", AddBench},
      {"eval", "Perplexity and logits of a text, and how far another model or setting is", AddEval},
      {"synth", "Write a random model of any shape, with known activations", AddSynth},
      {"calibrate", "Find the thresholds of the sign predictor, or of mode threshold",
       AddCalibrate},
      {"profile", "Count how often a text activates each neuron", AddProfile},
      {"pack", "Write the bundle file that a model's flash tier reads", AddPack},
      {"plan", "Place a model's neurons; replay a trace against caches; what a draft would gain",
       AddPlan},
      {"doctor", "Whether this machine is ready, and what to change", AddDoctor},
      {"train-predictor", "Learn to predict which neurons a token activates", AddTrainPredictor},
  };
  std::vector<std::pair<std::string, Command>> commands;
  for (const Entry& entry : kEntries)
    commands.emplace_back(entry.name, entry.add(line.AddCommand(entry.name, entry.help)));
  if (const auto status = line.Parse(argc, argv)) return *status;
  thermocline::base::ConfigureLog(thermocline::base::LogLevel::kWarning, false);
  for (const auto& [name, command] : commands) {
    if (name != line.command()) continue;
    thermocline::Status status = thermocline::base::OrNoMemory("this", command);
    if (status.ok() && (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)) {
      status = thermocline::base::Unavailable("standard output cannot be written");
    }
    if (status.ok()) return ExitStatusOr(kExitDone);
    std::fprintf(stderr, "thermocline %s: %s\n", name.c_str(),
                 thermocline::base::EscapeControls(status.message()).c_str());
    return ExitStatusOr(kExitFailed);
  }
  return kExitUsage;
}

}  // namespace

// NOLINTNEXTLINE(bugprone-exception-escape): what is thrown here ends the process with its message
int main(int argc, char** argv) {
  try {
    return Main(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("thermocline: this machine has no memory left\n", stderr);
    return kExitFailed;
  }
}
