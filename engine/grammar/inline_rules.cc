#include "engine/grammar/inline_rules.h"

#include <algorithm>
#include <utility>

namespace thermocline::grammar {
namespace {

constexpr int kSmall = 48, kOnceMax = 1 << 14;  // states

class Inliner {
 public:
  Inliner(const Grammar& grammar, Budget& budget) : grammar_(grammar), budget_(budget) {
    const std::size_t count = grammar.rules.size();
    uses_.resize(count);
    state_.resize(count);
    stays_.resize(count);
    bodies_.resize(count);
    renamed_.resize(count, -1);
    for (const Rule& rule : grammar.rules)
      for (const Edge& edge : rule.body.edges())
        if (edge.kind == Edge::Kind::kRule) ++uses_[edge.value];
  }

  Result<Grammar> Run() {
    FindRecursive();
    stays_[grammar_.root] = true;
    RETURN_IF_ERROR(Fill());
    Grammar out;
    Keep(grammar_.root, out);
    for (std::size_t i = 0; i < out.rules.size(); ++i) {
      Nfa body;
      while (body.num_states() < out.rules[i].body.num_states()) body.AddState();
      for (const Edge& edge : out.rules[i].body.edges()) {
        const bool enters = edge.kind == Edge::Kind::kRule;
        body.AddEdgeAs(edge, enters ? Keep(edge.value, out) : edge.value);
      }
      out.rules[i].body = std::move(body);
    }
    return out;
  }

 private:
  enum class Mark : char { kNew, kOpen, kDone };

  // Sorts rules after the rules they enter; a rule that enters one still open is recursive.
  // Iterative, because grammars may be deep.
  void FindRecursive() {
    struct Frame {
      int rule;
      std::size_t edge;
    };
    std::vector<Frame> stack{{grammar_.root, 0}};
    state_[grammar_.root] = Mark::kOpen;
    while (!stack.empty()) {
      Frame& top = stack.back();
      const auto& edges = grammar_.rules[top.rule].body.edges();
      while (top.edge < edges.size() && edges[top.edge].kind != Edge::Kind::kRule) ++top.edge;
      if (top.edge == edges.size()) {
        state_[top.rule] = Mark::kDone;
        order_.push_back(top.rule);
        stack.pop_back();
        continue;
      }
      const int entered = edges[top.edge++].value;
      if (state_[entered] == Mark::kOpen) stays_[entered] = true;
      if (state_[entered] != Mark::kNew) continue;
      state_[entered] = Mark::kOpen;
      stack.push_back({entered, 0});
    }
  }

  Status Fill() {
    for (const int rule : order_) {
      Nfa body;
      const Nfa& from = grammar_.rules[rule].body;
      while (body.num_states() < from.num_states()) body.AddState();
      for (const Edge& edge : from.edges()) {
        if (edge.kind != Edge::Kind::kRule || stays_[edge.value]) {
          body.AddEdgeAs(edge, edge.value);
        } else {
          body.Insert(edge.from, bodies_[edge.value], edge.to);
          RETURN_IF_ERROR(budget_.Check(body.num_states(), body.bytes_held()));
        }
      }
      const int most = uses_[rule] == 1 ? kOnceMax : kSmall;
      if (body.num_states() > most) stays_[rule] = true;
      budget_.Hold(body.bytes_held());
      bodies_[rule] = std::move(body);
    }
    return OkStatus();
  }

  int Keep(int rule, Grammar& out) {
    if (renamed_[rule] < 0) {
      renamed_[rule] = out.AddRule(grammar_.rules[rule].name);
      out.rules.back().body = std::move(bodies_[rule]);
    }
    return renamed_[rule];
  }

  const Grammar& grammar_;
  Budget& budget_;
  std::vector<int> uses_, order_, renamed_;
  std::vector<Mark> state_;
  std::vector<bool> stays_;
  std::vector<Nfa> bodies_;
};

}  // namespace

Result<Grammar> Inlined(const Grammar& grammar, Budget& budget) {
  return Inliner(grammar, budget).Run();
}

}  // namespace thermocline::grammar
