// A rule's body made deterministic, and operations on those that consume bytes alone.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/grammar/budget.h"
#include "engine/grammar/nfa.h"

namespace thermocline::grammar {

struct ByteEdge {
  std::uint8_t lo, hi;
  int to;
};
struct RuleEdge {
  int rule, to;
};
struct TokenEdge {
  int token;
  bool negated;  // any token but this one
  int to;
};

// State 0 is the start. Edges of bytes are sorted and disjoint, but where MakeDeterministic gave
// up.
struct Dfa {
  struct State {
    std::vector<ByteEdge> bytes;
    std::vector<RuleEdge> rules;
    std::vector<TokenEdge> tokens;
    bool accepting = false;
  };
  std::vector<State> states;

  int num_states() const { return static_cast<int>(states.size()); }
};

// The edges of a rule stay ambiguous if its deterministic form would be many times larger than
// `nfa`: the parser follows all of them. `exact`: then it is InvalidArgument. Errors as
// Budget::Check.
// Source: the subset construction, Rabin and Scott 1959.
Result<Dfa> MakeDeterministic(const Nfa& nfa, Budget& budget, bool exact = false);

// For automata of bytes that are deterministic. Errors as Budget::Check.
Result<Dfa> Intersection(const Dfa& a, const Dfa& b, Budget& budget);
// Returns the texts of `universe` that are not in `a`.
Result<Dfa> Difference(const Dfa& universe, const Dfa& a, Budget& budget);
bool IsEmpty(const Dfa& dfa);
bool Accepts(const Dfa& dfa, std::string_view text);
// Without states that lead to no end; the start stays.
Dfa Trimmed(const Dfa& dfa);
// The automaton as a part of `nfa` between two states.
void Insert(const Dfa& dfa, int from, Nfa& nfa, int to);

}  // namespace thermocline::grammar
