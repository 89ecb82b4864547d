// Learns how a model writes its answers from what its chat template makes of conversations with
// known words in them: the text around those words is the format.
// Source: the idea of telling formats by rendering is that of llama.cpp's template analysis.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "engine/base/json.h"
#include "server/chat/output_format.h"

namespace thermocline::chat {

struct ProbedTemplate {
  // The text of a conversation ("messages", "tools", "add_generation_prompt"); an error where the
  // template refuses it.
  std::function<Result<std::string>(const Json& conversation)> render;
  // True if a token of this text ends answers.
  std::function<bool(std::string_view text)> is_stop;
  std::string source;  // of the template
};

// Always an answer: where the template does not tell how calls are written, they are objects of
// JSON between <tool_call> and </tool_call>.
OutputFormat LearnFormat(const ProbedTemplate& chat_template);

}  // namespace thermocline::chat
