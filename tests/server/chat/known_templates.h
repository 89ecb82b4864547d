// The chat templates of the tests: those of models, if the peer's package is available.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "engine/text/chat_template.h"
#include "server/chat/format_probe.h"

namespace thermocline::chat {

struct KnownTemplate {
  std::string name, source;
  std::shared_ptr<const text::ChatTemplate> parsed;

  Result<std::string> Render(Json conversation) const {
    conversation.Set("bos_token", "<s>");
    conversation.Set("eos_token", "</s>");
    return parsed->Render(conversation);
  }
  OutputFormat Format() const {
    static const std::vector<std::string> kStops = {
        "</s>",          "<|im_end|>",     "<|eot_id|>",        "<|eom_id|>",
        "<|end|>",       "<end_of_turn>",  "<|end_of_text|>",   "<|END_OF_TURN_TOKEN|>",
        "<seed:eos>",    "<|call|>",       "<|return|>",        "<｜end▁of▁sentence｜>",
        "<turn|>",       "<|role_end|>",   "<|message_sep|>",   "<|assistant_end|>",
        "<|endoftext|>", "<|end_of_msg|>", "<end_of_sentence>", "<SPECIAL_12>"};
    return LearnFormat({.render = [this](const Json& c) { return Render(c); },
                        .is_stop =
                            [](std::string_view text) {
                              return std::find(kStops.begin(), kStops.end(), text) != kStops.end();
                            },
                        .source = source});
  }
};

inline KnownTemplate ParsedTemplate(std::string name, const std::string& source) {
  auto parsed = text::ChatTemplate::Parse(source);
  KnownTemplate out{.name = std::move(name), .source = source, .parsed = nullptr};
  if (parsed.ok()) out.parsed = *std::move(parsed);
  return out;
}

// Empty if THERMOCLINE_PEER does not name the peer's folder.
inline std::vector<KnownTemplate> TemplatesOfPeer() {
  std::vector<KnownTemplate> out;
  const char* peer = std::getenv("THERMOCLINE_PEER");
  if (peer == nullptr) return out;
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(peer) / "models/templates"))
    if (entry.path().extension() == ".jinja") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    std::ifstream in(file);
    std::stringstream text;
    text << in.rdbuf();
    KnownTemplate known = ParsedTemplate(file.stem(), text.str());
    if (known.parsed != nullptr) out.push_back(std::move(known));
  }
  return out;
}

}  // namespace thermocline::chat
