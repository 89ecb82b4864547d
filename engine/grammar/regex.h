// Regular expressions: patterns of JSON schemas, and those that clients send alone.
//
// What RE2 refuses is refused in its words; of what it takes, the parts that a set of texts can be
// made of: no flags, no word boundaries, no classes by Unicode property. `.` is any character but a
// line's end, \d \w \s are ASCII, \uHHHH is ECMAScript's. ^ and $ stand for the text's begin and
// end, wherever they are.
#pragma once

#include <string>

#include "engine/grammar/expression.h"

namespace thermocline::grammar {

// InvalidArgument: RE2 refuses it, or Unimplemented, by name: what is not supported.
Result<Expression> ParseRegex(const std::string& pattern);

}  // namespace thermocline::grammar
