// GBNF, the notation of llama.cpp's grammars.
//
//   root  ::= "yes" | "no" ws          alternatives; the start rule is `root`
//   ws    ::= [ \t\n]*                 classes, negated ones, `.` for any character
//   item  ::= (a b)? c+ d{2,4}         groups; ? * + {m} {m,} {m,n}
//   think ::= <think> <[1000]> !<end>  a token by its text or its id; any token but one
// Escapes: \n \r \t \\ \" \[ \] \- \^ \xHH \uHHHH \UHHHHHHHH. Comments from # to the line's end. A
// rule continues on the next line within ( ) and after |. Left recursion is supported.
// Source: the syntax as llama.cpp documents it (grammars/README.md).
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "engine/grammar/budget.h"
#include "engine/grammar/grammar.h"

namespace thermocline::grammar {

// The tokens and rules that a grammar's text may refer to.
struct GbnfNames {
  // The id of a token's text, -1 if no token has that text.
  std::function<int(const std::string&)> find_token;
  // The grammar of a rule that the text does not define; nullopt: there is none. May be empty.
  std::function<std::optional<Result<Grammar>>(const std::string&)> find_part = {};
};

// InvalidArgument with line and column; errors as Budget::Check and as GbnfNames::find_part.
Result<Grammar> ParseGbnf(const std::string& text, const GbnfNames& names, Budget& budget);

}  // namespace thermocline::grammar
