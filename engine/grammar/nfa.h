// The body of a rule under construction: states, and edges that consume a byte of a range, one
// token, or a text that another rule derives.
//
// Text is bytes throughout. A character class becomes sequences of byte ranges, so a character
// split between two tokens needs no special case. Source: Thompson 1968; the ranges of UTF-8 as in
// RE2 (Cox 2010).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace thermocline::grammar {

struct Edge {
  enum class Kind : std::uint8_t {
    kEmpty,
    kBytes,     // a byte in [lo, hi]
    kRule,      // a text of rule `value`
    kToken,     // the token `value`
    kNotToken,  // any one token but `value`
    kBegin,     // empty, at the text's beginning
    kEnd,       // empty, at the text's end
  };
  int from = 0, to = 0;
  Kind kind = Kind::kEmpty;
  std::uint8_t lo = 0, hi = 0;
  int value = -1;
};

inline constexpr char32_t kCodePointMax = 0x10FFFF;

struct CodePointRange {
  char32_t lo = 0, hi = 0;  // both included
};
// A set of characters: sorted, disjoint ranges.
using CodePointSet = std::vector<CodePointRange>;
// Sorts the ranges, and joins adjacent ones.
CodePointSet Normalized(CodePointSet set);
CodePointSet Complement(const CodePointSet& set);

// Thread-compatible. State 0 is the start, state 1 the only final one.
class Nfa {
 public:
  static constexpr int kStart = 0, kFinal = 1;

  int AddState() { return num_states_++; }
  void Link(int from, int to) { edges_.push_back({.from = from, .to = to}); }
  void AddByte(int from, std::uint8_t lo, std::uint8_t hi, int to) {
    edges_.push_back({.from = from, .to = to, .kind = Edge::Kind::kBytes, .lo = lo, .hi = hi});
  }
  void AddEdge(int from, Edge::Kind kind, int value, int to) {
    edges_.push_back({.from = from, .to = to, .kind = kind, .value = value});
  }
  // Adds `edge` with another value.
  void AddEdgeAs(Edge edge, int value) {
    edge.value = value;
    edges_.push_back(edge);
  }
  void Call(int from, int rule, int to) { AddEdge(from, Edge::Kind::kRule, rule, to); }
  // Adds the characters of `set` in UTF-8; surrogates are left out.
  void AddSet(int from, const CodePointSet& set, int to);
  // Appends `bytes` after `from`; returns the state after them.
  int Literal(int from, std::string_view bytes);

  int num_states() const { return num_states_; }
  const std::vector<Edge>& edges() const { return edges_; }
  std::size_t bytes_held() const { return edges_.capacity() * sizeof(Edge); }
  // Copies `other` between two states.
  void Insert(int from, const Nfa& other, int to);

 private:
  void AddRange(int from, char32_t lo, char32_t hi, int to);
  void AddSequence(int from, const std::uint8_t* lo, const std::uint8_t* hi, int count, int to);

  int num_states_ = 2;
  std::vector<Edge> edges_;
};

}  // namespace thermocline::grammar
