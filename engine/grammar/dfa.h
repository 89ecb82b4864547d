// Deterministic automata of rules' bodies, and operations on automata that consume only bytes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/base/index.h"
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

// State 0 is the start. Byte edges are sorted and disjoint, unless MakeDeterministic gave up.
struct Dfa {
  struct State {
    std::vector<ByteEdge> bytes;
    std::vector<RuleEdge> rules;
    std::vector<TokenEdge> tokens;
    bool accepting = false;
  };
  std::vector<State> states;

  int num_states() const { return base::IntSize(states); }
};

// If the deterministic form would be many times larger than `nfa`, the edges stay ambiguous and the
// parser follows all of them; with `exact` it is InvalidArgument instead. Errors as Budget::Check.
// Source: the subset construction, Rabin and Scott 1959.
Result<Dfa> MakeDeterministic(const Nfa& nfa, Budget& budget, bool exact = false);

// For deterministic automata of bytes. Errors as Budget::Check.
Result<Dfa> Intersection(const Dfa& a, const Dfa& b, Budget& budget);
// Returns the texts of `universe` that are not in `a`.
Result<Dfa> Difference(const Dfa& universe, const Dfa& a, Budget& budget);
bool IsEmpty(const Dfa& dfa);
bool Accepts(const Dfa& dfa, std::string_view text);
// Returns `dfa` without states that lead to no end; the start stays.
Dfa Trimmed(const Dfa& dfa);
// Copies the automaton into `nfa` between two states.
void Insert(const Dfa& dfa, int from, Nfa& nfa, int to);

}  // namespace thermocline::grammar
