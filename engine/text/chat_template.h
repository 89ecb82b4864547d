// Turns a conversation into the prompt its model was trained on.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "engine/base/json.h"
#include "engine/base/status.h"

namespace thermocline::text {

// Thread-safe: rendering shares nothing. Steps, output and depth are bounded.
class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;
  // `variables` is an object: messages, tools, add_generation_prompt, bos_token, ...
  // InvalidArgument for what the template refuses; ResourceExhausted beyond a bound.
  virtual Result<std::string> Render(const Json& variables) const = 0;

  // Parses a Jinja template. InvalidArgument for syntax errors, Unimplemented naming an unsupported
  // construct; both with the line.
  static Result<std::unique_ptr<ChatTemplate>> Parse(std::string_view source);
};

}  // namespace thermocline::text
