// Learns a model's answer format by rendering conversations of known words with its chat template:
// the text around those words is the format. Source: the idea is from llama.cpp's template
// analysis.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "engine/base/json.h"
#include "server/chat/output_format.h"

namespace thermocline::chat {

struct ProbedTemplate {
  // Renders a conversation ("messages", "tools", "add_generation_prompt"); an error if the template
  // rejects it.
  std::function<Result<std::string>(const Json& conversation)> render;
  // True if a token with this text ends answers.
  std::function<bool(std::string_view text)> is_stop;
  std::string source;  // the template's source
};

// Always returns a format with calls: if the template does not show their format, calls are JSON
// objects between <tool_call> and </tool_call>.
OutputFormat LearnFormat(const ProbedTemplate& chat_template);

}  // namespace thermocline::chat
