// A grammar as a pushdown automaton in flat arrays, on which the parser runs.
//
// A state consumes bytes, or enters another rule and continues after it. Small rules and rules used
// once are inlined into the rules that use them, so that most states know the bytes that may
// follow; the others are entered at run time.
#pragma once

#include <bitset>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/index.h"
#include "engine/grammar/dfa.h"
#include "engine/grammar/grammar.h"

namespace thermocline::grammar {

using ByteSet = std::bitset<256>;

// Immutable after construction.
class Automaton {
 public:
  // InvalidArgument: the grammar derives no text, or as Budget::Check.
  static Result<Automaton> Create(const Grammar& grammar, Budget& budget);

  int num_states() const { return base::IntSize(flags_); }
  int num_rules() const { return base::IntSize(rule_start_); }
  int start() const { return rule_start_[0]; }  // of the root, rule 0
  int rule_start(int rule) const { return rule_start_[rule]; }
  std::span<const ByteEdge> bytes(int state) const { return Part(bytes_, bytes_begin_, state); }
  std::span<const RuleEdge> rules(int state) const { return Part(rules_, rules_begin_, state); }
  std::span<const TokenEdge> tokens(int state) const { return Part(tokens_, tokens_begin_, state); }
  bool accepting(int state) const { return (flags_[state] & kAccepting) != 0; }
  // True if the state consumes bytes or tokens itself.
  bool consumes(int state) const { return (flags_[state] & kConsumes) != 0; }
  // True if no edge leaves the state and its rule ends here.
  bool ends(int state) const { return flags_[state] == kAccepting; }
  // Bytes that can come after the rule of `state`, in any place where it is used.
  const ByteSet& follow(int state) const { return follow_[rule_of_[state]]; }
  // The largest n for which every text of up to n characters that need no escape in a JSON string
  // can be consumed from here within the rule; at most kPlainDepthMax.
  int plain_depth(int state) const { return plain_depth_[state]; }
  static constexpr int kPlainDepthMax = 32;
  std::size_t bytes_held() const;

 private:
  static constexpr std::uint8_t kAccepting = 1, kConsumes = 2, kEnters = 4;
  template <typename T>
  static std::span<const T> Part(const std::vector<T>& all, const std::vector<std::uint32_t>& begin,
                                 int state) {
    return std::span(all).subspan(begin[state], begin[state + 1] - begin[state]);
  }
  void Append(const Dfa& dfa, int rule, const std::vector<int>& renamed);
  Status FindFollow(const Budget& budget);
  Status FindPlainDepths(const Budget& budget);

  std::vector<int> rule_start_, rule_of_;
  std::vector<std::uint8_t> flags_, plain_depth_;
  std::vector<std::uint32_t> bytes_begin_{0}, rules_begin_{0}, tokens_begin_{0};
  std::vector<ByteEdge> bytes_;
  std::vector<RuleEdge> rules_;
  std::vector<TokenEdge> tokens_;
  std::vector<ByteSet> follow_;  // by rule
};

}  // namespace thermocline::grammar
