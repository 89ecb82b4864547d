// Cuts a template into text and the tokens between its delimiters.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"

namespace thermocline::text::jinja {

struct Token {
  enum class Kind {
    kText,
    kOutputBegin,
    kOutputEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd
  };
  Kind kind = Kind::kEnd;
  std::string text;  // text, name, string's value, number, or operator
  int line = 0;
};

// With trim_blocks, lstrip_blocks and the last newline dropped, as Hugging Face renders chat
// templates. InvalidArgument with the line.
Result<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace thermocline::text::jinja
