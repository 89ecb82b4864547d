#include "engine/grammar/dfa.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "engine/base/index.h"

namespace thermocline::grammar {
namespace {

using States = std::vector<int>;

struct StatesHash {
  std::size_t operator()(const States& states) const {
    std::size_t hash = states.size();
    for (const int state : states) hash = (hash ^ state) * 0x9E3779B97F4A7C15U;
    return hash ^ (hash >> 29);
  }
};

// The approximate size of a state.
std::size_t BytesOf(const Dfa::State& state) {
  return sizeof(state) + state.bytes.capacity() * sizeof(ByteEdge) +
         state.rules.capacity() * sizeof(RuleEdge) + state.tokens.capacity() * sizeof(TokenEdge);
}

// Makes sets of states of `nfa` into states.
class Subsets {
 public:
  Subsets(const Nfa& nfa, Budget& budget) : nfa_(nfa), budget_(budget) {
    begin_.resize(nfa.num_states() + 1U);
    for (const Edge& edge : nfa.edges()) ++begin_[static_cast<std::size_t>(edge.from) + 1];
    for (std::size_t i = 1; i < begin_.size(); ++i) begin_[i] += begin_[i - 1];
    order_.resize(nfa.edges().size());
    std::vector<std::size_t> next(begin_.begin(), begin_.end() - 1);
    for (int i = 0; i < base::IntSize(nfa.edges()); ++i) order_[next[nfa.edges()[i].from]++] = i;
    marks_.resize(nfa.num_states());
  }

  // Builds at most `states_max` sets; returns false if there would be more.
  Result<bool> Run(std::size_t states_max, Dfa& out) {
    ids_.clear();
    sets_.clear();
    out.states.clear();
    IdOf(Closure({Nfa::kStart}, true), true);
    for (std::size_t i = 0; i < sets_.size(); ++i) {
      if (sets_.size() > states_max) return false;
      RETURN_IF_ERROR(budget_.Check(sets_.size()));
      Dfa::State state;
      const States& set = *sets_[i];
      state.accepting = Accepting(set, i == 0);
      RETURN_IF_ERROR(Expand(set, state));
      budget_.Hold(BytesOf(state));
      out.states.push_back(std::move(state));
    }
    return true;
  }

  // Keeps every state, but removes the edges that consume nothing.
  Status Flatten(Dfa& out) {
    ids_.clear();
    sets_.clear();
    out.states.clear();
    IdOf({Nfa::kStart}, true);
    for (std::size_t i = 0; i < sets_.size(); ++i) {
      RETURN_IF_ERROR(CheckSets());
      const States closed = Closure(*sets_[i], i == 0);
      Dfa::State state;
      state.accepting = Accepting(closed, i == 0);
      ForEdges(closed, [&](const Edge& edge) {
        const int to = IdOf({edge.to}, false);
        if (edge.kind == Edge::Kind::kBytes) state.bytes.push_back({edge.lo, edge.hi, to});
        if (edge.kind == Edge::Kind::kRule) state.rules.push_back({edge.value, to});
        AddToken(edge, to, state);
      });
      budget_.Hold(BytesOf(state));
      out.states.push_back(std::move(state));
    }
    return OkStatus();
  }

 private:
  template <typename Visit>
  void ForEdges(const States& set, Visit visit) const {
    for (const int state : set) {
      const std::size_t at = state;
      for (std::size_t e = begin_[at]; e < begin_[at + 1]; ++e) visit(nfa_.edges()[order_[e]]);
    }
  }

  static void AddToken(const Edge& edge, int to, Dfa::State& state) {
    const bool negated = edge.kind == Edge::Kind::kNotToken;
    if (negated || edge.kind == Edge::Kind::kToken)
      state.tokens.push_back({edge.value, negated, to});
  }

  // Returns the states reached without consuming anything, sorted.
  States Closure(States set, bool at_begin, bool at_end = false) {
    ++mark_;
    std::size_t kept = 0;
    for (const int state : set)
      if (std::exchange(marks_[state], mark_) != mark_) set[kept++] = state;
    set.resize(kept);
    for (std::size_t i = 0; i < set.size(); ++i) {
      const std::size_t at = set[i];
      for (std::size_t e = begin_[at]; e < begin_[at + 1]; ++e) {
        const Edge& edge = nfa_.edges()[order_[e]];
        const bool free = edge.kind == Edge::Kind::kEmpty ||
                          (edge.kind == Edge::Kind::kBegin && at_begin) ||
                          (edge.kind == Edge::Kind::kEnd && at_end);
        if (free && std::exchange(marks_[edge.to], mark_) != mark_) set.push_back(edge.to);
      }
    }
    std::sort(set.begin(), set.end());
    return set;
  }

  bool Accepting(const States& set, bool at_begin) {
    const States ended = Closure(set, at_begin, true);
    return std::binary_search(ended.begin(), ended.end(), int{Nfa::kFinal});
  }

  int IdOf(States set, bool closed) {
    if (!closed && set.size() > 1) set = Closure(std::move(set), false);
    const auto [found, added] = ids_.emplace(std::move(set), base::IntSize(sets_));
    if (added) {
      constexpr std::size_t kNodeBytes = 96;  // of a hash table's node and its entry
      budget_.Hold(kNodeBytes + found->first.capacity() * sizeof(int));
      sets_.push_back(&found->first);
    }
    return found->second;
  }

  // A set may be as large as the automaton, and one state may lead to hundreds.
  Status CheckSets() { return budget_.Check(sets_.size()); }

  Status Expand(const States& set, Dfa::State& state) {
    std::vector<const Edge*> bytes;
    std::map<int, States> rules;
    ForEdges(set, [&](const Edge& edge) {
      if (edge.kind == Edge::Kind::kBytes) bytes.push_back(&edge);
      if (edge.kind == Edge::Kind::kRule) rules[edge.value].push_back(edge.to);
      if (edge.kind == Edge::Kind::kToken || edge.kind == Edge::Kind::kNotToken)
        AddToken(edge, IdOf(Closure({edge.to}, false), true), state);
    });
    RETURN_IF_ERROR(ExpandBytes(bytes, state));
    for (auto& [rule, targets] : rules) {
      RETURN_IF_ERROR(CheckSets());
      state.rules.push_back({rule, IdOf(Closure(std::move(targets), false), true)});
    }
    return OkStatus();
  }

  Status ExpandBytes(const std::vector<const Edge*>& edges, Dfa::State& state) {
    bool borders[257] = {};
    for (const Edge* edge : edges) borders[edge->lo] = borders[edge->hi + 1] = true;
    for (int lo = 0; lo < 256;) {
      int hi = lo;
      while (!borders[hi + 1] && hi < 255) ++hi;
      States targets;
      for (const Edge* edge : edges)
        if (edge->lo <= lo && lo <= edge->hi) targets.push_back(edge->to);
      if (!targets.empty()) {
        RETURN_IF_ERROR(CheckSets());
        const int to = IdOf(Closure(std::move(targets), false), true);
        const bool joins =
            !state.bytes.empty() && state.bytes.back().to == to && state.bytes.back().hi + 1 == lo;
        if (joins) {
          state.bytes.back().hi = static_cast<std::uint8_t>(hi);
        } else {
          state.bytes.push_back({static_cast<std::uint8_t>(lo), static_cast<std::uint8_t>(hi), to});
        }
      }
      lo = hi + 1;
    }
    return OkStatus();
  }

  const Nfa& nfa_;
  Budget& budget_;
  std::vector<std::size_t> begin_;  // of a state's edges in order_
  std::vector<int> order_, marks_;
  int mark_ = 0;
  std::unordered_map<States, int, StatesHash> ids_;
  std::vector<const States*> sets_;  // keys of ids_
};

// Returns the state that `byte` leads to from a deterministic state; -1: none.
int Next(const Dfa::State& state, std::uint8_t byte) {
  for (const ByteEdge& edge : state.bytes)
    if (edge.lo <= byte && byte <= edge.hi) return edge.to;
  return -1;
}

// Pairs of states; -1 for `b` means that it has no state left.
Result<Dfa> Product(const Dfa& a, const Dfa& b, bool difference, Budget& budget) {
  Dfa out;
  std::map<std::pair<int, int>, int> ids;
  std::vector<std::pair<int, int>> pairs;
  const auto id_of = [&](int first, int second) {
    const auto [found, added] = ids.emplace(std::pair(first, second), base::IntSize(ids));
    if (added) pairs.emplace_back(first, second);
    return found->second;
  };
  id_of(0, 0);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    RETURN_IF_ERROR(budget.Check(pairs.size()));
    const auto [first, second] = pairs[i];
    Dfa::State state;
    const bool in_b = second >= 0 && b.states[second].accepting;
    state.accepting = a.states[first].accepting && in_b != difference;
    for (const ByteEdge& edge : a.states[first].bytes) {
      for (int byte = edge.lo; byte <= edge.hi; ++byte) {
        const auto at = static_cast<std::uint8_t>(byte);
        const int with = second < 0 ? -1 : Next(b.states[second], at);
        if (with < 0 && !difference) continue;
        const int to = id_of(edge.to, with);
        const bool joins = !state.bytes.empty() && state.bytes.back().to == to &&
                           state.bytes.back().hi + 1 == byte;
        if (joins) {
          state.bytes.back().hi = at;
        } else {
          state.bytes.push_back({at, at, to});
        }
      }
    }
    budget.Hold(BytesOf(state));
    out.states.push_back(std::move(state));
  }
  return Trimmed(out);
}

}  // namespace

Result<Dfa> MakeDeterministic(const Nfa& nfa, Budget& budget, bool exact) {
  constexpr std::size_t kFew = 512, kGrowth = 8;
  Subsets subsets(nfa, budget);
  Dfa out;
  const std::size_t most = exact ? budget.states_max() : std::max(kFew, kGrowth * nfa.num_states());
  ASSIGN_OR_RETURN(const bool whole, subsets.Run(most, out));
  if (!whole && exact) RETURN_IF_ERROR(budget.Check(budget.states_max() + 1));
  if (!whole) RETURN_IF_ERROR(subsets.Flatten(out));
  return out;
}

Result<Dfa> Intersection(const Dfa& a, const Dfa& b, Budget& budget) {
  return Product(a, b, false, budget);
}

Result<Dfa> Difference(const Dfa& universe, const Dfa& a, Budget& budget) {
  return Product(universe, a, true, budget);
}

bool Accepts(const Dfa& dfa, std::string_view text) {
  int state = 0;
  for (const char c : text) {
    state = Next(dfa.states[state], c);
    if (state < 0) return false;
  }
  return dfa.states[state].accepting;
}

bool IsEmpty(const Dfa& dfa) {
  const Dfa trimmed = Trimmed(dfa);
  return !trimmed.states[0].accepting && trimmed.states[0].bytes.empty();
}

Dfa Trimmed(const Dfa& dfa) {
  std::vector<std::vector<int>> into(dfa.states.size());
  std::vector<int> live;
  std::vector<bool> is_live(dfa.states.size());
  for (int i = 0; i < base::IntSize(dfa.states); ++i) {
    for (const ByteEdge& edge : dfa.states[i].bytes) into[edge.to].push_back(i);
    if (!dfa.states[i].accepting) continue;
    is_live[i] = true;
    live.push_back(i);
  }
  for (std::size_t i = 0; i < live.size(); ++i) {
    for (const int from : into[live[i]]) {
      if (is_live[from]) continue;
      is_live[from] = true;
      live.push_back(from);
    }
  }
  is_live[0] = true;
  std::vector<int> renamed(dfa.states.size(), -1);
  int count = 0;
  for (std::size_t i = 0; i < dfa.states.size(); ++i)
    if (is_live[i]) renamed[i] = count++;
  Dfa out;
  for (std::size_t i = 0; i < dfa.states.size(); ++i) {
    if (!is_live[i]) continue;
    Dfa::State state;
    state.accepting = dfa.states[i].accepting;
    for (const ByteEdge& edge : dfa.states[i].bytes)
      if (renamed[edge.to] >= 0) state.bytes.push_back({edge.lo, edge.hi, renamed[edge.to]});
    out.states.push_back(std::move(state));
  }
  return out;
}

void Insert(const Dfa& dfa, int from, Nfa& nfa, int to) {
  std::vector<int> at;
  at.reserve(dfa.states.size());
  for (int i = 0; i < dfa.num_states(); ++i) at.push_back(nfa.AddState());
  nfa.Link(from, at[0]);
  for (std::size_t i = 0; i < dfa.states.size(); ++i) {
    for (const ByteEdge& edge : dfa.states[i].bytes)
      nfa.AddByte(at[i], edge.lo, edge.hi, at[edge.to]);
    if (dfa.states[i].accepting) nfa.Link(at[i], to);
  }
}

}  // namespace thermocline::grammar
