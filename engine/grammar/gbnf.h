// GBNF, the notation of llama.cpp's grammars.
//
//   root  ::= "yes" | "no" ws          alternatives; the first rule that counts is `root`
//   ws    ::= [ \t\n]*                 classes, negated ones, `.` for any character
//   item  ::= (a b)? c+ d{2,4}         groups; ? * + {m} {m,} {m,n}
//   think ::= <think> <[1000]> !<end>  a token by its text or its id; any token but one
// Escapes: \n \r \t \\ \" \[ \] \- \^ \xHH \uHHHH \UHHHHHHHH. Comments from # to the line's end. A
// rule goes on behind a line's end within ( ) and behind |. Left recursion is understood.
// Source: the syntax as llama.cpp documents it (grammars/README.md).
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "engine/grammar/budget.h"
#include "engine/grammar/grammar.h"

namespace thermocline::grammar {

// The names that a grammar's text may refer to.
struct GbnfNames {
  // The id of a token's text, -1 if no token is written so.
  std::function<int(const std::string&)> find_token;
  // The grammar behind a rule that the text does not define; nothing: there is none. May be empty.
  std::function<std::optional<Result<Grammar>>(const std::string&)> find_part = {};
};

// InvalidArgument with line and column; errors as Budget::Check and as GbnfNames::find_part.
Result<Grammar> ParseGbnf(const std::string& text, const GbnfNames& names, Budget& budget);

}  // namespace thermocline::grammar
