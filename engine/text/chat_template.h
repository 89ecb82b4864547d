// Turns a conversation into the prompt its model was trained on.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/text/template_text.h"

namespace thermocline::text {

constexpr std::size_t kRenderedBytesMax = std::size_t{32} << 20;

// Thread-safe: rendering shares nothing. Steps, output and depth are bounded.
class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;
  // Two objects. The texts of `data` (messages, tools, add_generation_prompt, ...) are data in the
  // result, but for the known roles of messages: templates write '<|' + role + '|>'. Those of `own`
  // (bos_token, ...) are the template's own. A number or a list that is written as text is data.
  // InvalidArgument for what the template refuses; ResourceExhausted beyond a bound, of which
  // `bytes_max` [bytes] is the text's.
  virtual Result<TemplateText> Render(const Json& data, const Json& own,
                                      std::size_t bytes_max) const = 0;
  // The bytes alone.
  Result<std::string> Render(const Json& variables) const;

  // Parses a Jinja template. InvalidArgument for syntax errors, Unimplemented naming an unsupported
  // construct; both with the line.
  static Result<std::unique_ptr<ChatTemplate>> Parse(std::string_view source);
};

}  // namespace thermocline::text
