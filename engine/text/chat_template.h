// Converts a conversation into a prompt in the format its model was trained on.
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

// Thread-safe: renderings share no state. Steps, output, depth and held memory are bounded.
class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;
  // Both arguments are objects. The texts of `data` (messages, tools, add_generation_prompt, ...)
  // become data in the result, except the known roles of messages, because templates write '<|' +
  // role + '|>'. The texts of `own` (bos_token, ...) count as the template's own. A number or a
  // list written as text is data. InvalidArgument if the template raises an error;
  // ResourceExhausted beyond a bound, of which `bytes_max` [bytes] limits the text.
  virtual Result<TemplateText> Render(const Json& data, const Json& own,
                                      std::size_t bytes_max) const = 0;
  // Returns only the bytes.
  Result<std::string> Render(const Json& variables) const;

  // Parses a Jinja template. InvalidArgument for syntax errors or a source above
  // model::kTemplateBytesMax, Unimplemented naming an unsupported construct; both with the line.
  static Result<std::unique_ptr<ChatTemplate>> Parse(std::string_view source);
};

}  // namespace thermocline::text
