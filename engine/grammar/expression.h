// The common form of grammars and regular expressions, before it becomes states.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/grammar/budget.h"
#include "engine/grammar/nfa.h"

namespace thermocline::grammar {

struct Expression {
  enum class Kind { kNothing, kText, kSet, kSequence, kChoice, kRepeat, kEdge };
  static constexpr int kNoMax = -1;

  Kind kind = Kind::kNothing;
  std::string text = {};                 // kText: bytes
  CodePointSet set = {};                 // kSet
  std::vector<Expression> parts = {};    // kSequence, kChoice; the repeated part of kRepeat
  int min = 0, max = kNoMax;             // kRepeat
  Edge::Kind edge = Edge::Kind::kEmpty;  // kEdge: of a rule, a token, or an end of the text
  int value = -1;                        // kEdge
};

inline constexpr int kRepeatMax = 10'000;

Expression TextOf(std::string text);
Expression SetOf(CodePointSet set);
Expression EdgeOf(Edge::Kind kind, int value = -1);
// Without parts the result is kNothing; with one part it is that part.
Expression SequenceOf(std::vector<Expression> parts);
Expression ChoiceOf(std::vector<Expression> parts);
Expression RepeatOf(Expression part, int min, int max);

// Adds the expression to `nfa` between two states. Errors as Budget::Check.
Status Emit(const Expression& expression, int from, Nfa& nfa, int to, Budget& budget);

}  // namespace thermocline::grammar
