#include "engine/grammar/end_recursion.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/index.h"

namespace thermocline::grammar {
namespace {

// One rule's body, whose start and end are states of their own.
class Body {
 public:
  Body(const Nfa& nfa, int rule) : nfa_(nfa), rule_(rule), in_(nfa.num_states()), out_(in_.size()) {
    for (const Edge& edge : nfa.edges()) {
      out_[edge.from].push_back(&edge);
      in_[edge.to].push_back(&edge);
    }
  }

  // Returns true if the rule begins or ends with itself somewhere, or is a power of itself.
  bool Find() {
    first_ = Only(Nfa::kStart, /*forwards=*/true, /*through_self=*/false);
    last_ = Only(Nfa::kFinal, /*forwards=*/false, /*through_self=*/false);
    powers_in_ = Only(Nfa::kStart, true, true);
    powers_out_ = Only(Nfa::kFinal, false, true);
    return std::any_of(nfa_.edges().begin(), nfa_.edges().end(), [this](const Edge& edge) {
      return IsSelf(edge) && (first_[edge.from] || last_[edge.to] || IsPower(edge));
    });
  }

  Nfa Loops() const {
    const bool closed = HasSquare();
    Nfa out;
    for (int i = 0; i < nfa_.num_states(); ++i) out.AddState();
    out.Link(Nfa::kStart, Inner(Nfa::kStart));
    out.Link(Inner(Nfa::kFinal), Nfa::kFinal);
    if (closed) out.Link(Inner(Nfa::kFinal), Inner(Nfa::kStart));
    for (const Edge& edge : nfa_.edges()) {
      if (closed && IsPower(edge)) continue;
      const bool first = IsSelf(edge) && first_[edge.from], last = IsSelf(edge) && last_[edge.to];
      if (first && !last) out.Link(Inner(Nfa::kFinal), Inner(edge.to));
      if (last && !first) out.Link(Inner(edge.from), Inner(Nfa::kStart));
      if (first || last) continue;
      Edge moved = edge;
      moved.from = Inner(edge.from);
      moved.to = Inner(edge.to);
      out.AddEdgeAs(moved, edge.value);
    }
    return out;
  }

 private:
  static int Inner(int state) { return state + 2; }
  bool IsSelf(const Edge& edge) const {
    return edge.kind == Edge::Kind::kRule && edge.value == rule_;
  }
  bool Passes(const Edge& edge, bool through_self) const {
    return edge.kind == Edge::Kind::kEmpty || (through_self && IsSelf(edge));
  }

  // States between which and `end` every path has only empty edges and, with `through_self`, edges
  // of the rule itself.
  std::vector<bool> Only(int end, bool forwards, bool through_self) const {
    std::vector<bool> only(in_.size());
    std::vector<int> open{end};
    only[end] = true;
    while (!open.empty()) {
      const int state = open.back();
      open.pop_back();
      for (const Edge* edge : forwards ? out_[state] : in_[state]) {
        const int next = forwards ? edge->to : edge->from;
        if (!Passes(*edge, through_self) || only[next]) continue;
        only[next] = true;
        open.push_back(next);
      }
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t state = 0; state < only.size(); ++state) {
        if (!only[state]) continue;
        const auto other = [&](const Edge* edge) {
          return !Passes(*edge, through_self) || !only[forwards ? edge->from : edge->to];
        };
        const auto& edges = forwards ? in_[state] : out_[state];
        if (std::none_of(edges.begin(), edges.end(), other)) continue;
        only[state] = false;
        changed = true;
      }
    }
    return only;
  }

  // True if the edge is part only of texts that consist of several texts of the rule in sequence.
  bool IsPower(const Edge& edge) const {
    return IsSelf(edge) && powers_in_[edge.from] && powers_out_[edge.to];
  }

  // Returns true if the rule also derives a sequence of two of its own texts, and therefore of any
  // number.
  bool HasSquare() const {
    std::vector<bool> seen(3 * in_.size());  // by state and the number of the rule before it
    std::vector<std::pair<int, int>> open{{Nfa::kStart, 0}};
    while (!open.empty()) {
      const auto [state, count] = open.back();
      open.pop_back();
      if (seen[3 * static_cast<std::size_t>(state) + count]) continue;
      seen[3 * static_cast<std::size_t>(state) + count] = true;
      if (state == Nfa::kFinal && count == 2) return true;
      for (const Edge* edge : out_[state]) {
        if (edge->kind == Edge::Kind::kEmpty) open.emplace_back(edge->to, count);
        if (IsSelf(*edge) && count < 2) open.emplace_back(edge->to, count + 1);
      }
    }
    return false;
  }

  const Nfa& nfa_;
  const int rule_;
  std::vector<std::vector<const Edge*>> in_, out_;  // by state
  // States with nothing before them (first_, powers_in_) or after them (last_, powers_out_); for
  // powers, the rule itself may be there.
  std::vector<bool> first_, last_, powers_in_, powers_out_;
};

}  // namespace

Result<bool> LoopEnds(Grammar& grammar, Budget& budget) {
  bool changed = false;
  for (int i = 0; i < base::IntSize(grammar.rules); ++i) {
    Nfa& nfa = grammar.rules[i].body;
    RETURN_IF_ERROR(budget.Check(nfa.num_states(), nfa.bytes_held()));
    const bool recursive = std::any_of(nfa.edges().begin(), nfa.edges().end(), [i](const Edge& e) {
      return e.kind == Edge::Kind::kRule && e.value == i;
    });
    if (!recursive) continue;
    Body body(nfa, i);
    if (!body.Find()) continue;
    nfa = body.Loops();
    changed = true;
  }
  return changed;
}

}  // namespace thermocline::grammar
