// Regular expressions: patterns of JSON schemas, and those that clients send directly.
//
// Patterns that RE2 rejects are rejected with its message; of the others, only parts that can
// describe a set of texts are supported: no flags, no word boundaries, no classes by Unicode
// property. `.` is any character but a line end, \d \w \s are ASCII, \uHHHH is ECMAScript's. ^ and
// $ are the text's beginning and end, in any position.
#pragma once

#include <string>

#include "engine/grammar/expression.h"

namespace thermocline::grammar {

// InvalidArgument: RE2 rejects it. Unimplemented names an unsupported part.
Result<Expression> ParseRegex(const std::string& pattern);

}  // namespace thermocline::grammar
