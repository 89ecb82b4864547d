#include "engine/grammar/automaton.h"

#include <algorithm>
#include <utility>

#include "engine/base/index.h"
#include "engine/grammar/end_recursion.h"
#include "engine/grammar/inline_rules.h"

namespace thermocline::grammar {
namespace {

// The states of all rules that lead to an end; a rule derives a text if its start does.
class LiveStates {
 public:
  explicit LiveStates(const std::vector<Dfa>& rules) : rules_(rules) {
    for (const Dfa& rule : rules) live_.emplace_back(rule.states.size(), false);
  }
  Status Find(const Budget& budget) {
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t rule = 0; rule < rules_.size(); ++rule) {
        ASSIGN_OR_RETURN(const bool spread, Spread(rule, budget));
        changed |= spread;
      }
    }
    return OkStatus();
  }
  bool operator()(std::size_t rule, int state) const { return live_[rule][state]; }
  bool derives(int rule) const { return live_[rule][0]; }

 private:
  bool Leads(std::size_t rule, const Dfa::State& state) const {
    const auto live = [&](const auto& edge) { return live_[rule][edge.to]; };
    return state.accepting || std::any_of(state.bytes.begin(), state.bytes.end(), live) ||
           std::any_of(state.tokens.begin(), state.tokens.end(), live) ||
           std::any_of(state.rules.begin(), state.rules.end(),
                       [&](const RuleEdge& edge) { return derives(edge.rule) && live(edge); });
  }
  Result<bool> Spread(std::size_t rule, const Budget& budget) {
    bool any = false;
    for (bool changed = true; changed;) {
      RETURN_IF_ERROR(budget.CheckTime());
      changed = false;
      // Backwards, because ends come after the states that lead to them.
      for (std::size_t i = live_[rule].size(); i-- > 0;) {
        if (live_[rule][i] || !Leads(rule, rules_[rule].states[i])) continue;
        live_[rule][i] = changed = any = true;
      }
    }
    return any;
  }

  const std::vector<Dfa>& rules_;
  std::vector<std::vector<bool>> live_;
};

Dfa WithoutDead(const Dfa& dfa, std::size_t rule, const LiveStates& live) {
  Dfa out = dfa;
  for (std::size_t i = 0; i < out.states.size(); ++i) {
    Dfa::State& state = out.states[i];
    const auto dead = [&](const auto& edge) { return !live(rule, edge.to); };
    std::erase_if(state.bytes, dead);
    std::erase_if(state.tokens, dead);
    std::erase_if(state.rules,
                  [&](const RuleEdge& edge) { return !live.derives(edge.rule) || dead(edge); });
  }
  return out;
}

// The states that the unescaped characters of JSON strings (U+0020 and above except the quote and
// the backslash) lead to from one state; none unless every such character leads to a state.
class PlainSteps {
 public:
  explicit PlainSteps(const Automaton& automaton) : automaton_(automaton) {}

  // Finds the states after one character; false: some character has no edge.
  bool From(int state, std::vector<int>& out) {
    out.clear();
    struct Lead {
      int lo, hi, first_lo, first_hi, tails;  // behind the lead: its own range, then 80 to BF
    };
    static constexpr Lead kLeads[] = {
        {0x20, 0x21, 0, 0, 0},       {0x23, 0x5B, 0, 0, 0},       {0x5D, 0x7F, 0, 0, 0},
        {0xC2, 0xDF, 0x80, 0xBF, 1}, {0xE0, 0xE0, 0xA0, 0xBF, 2}, {0xE1, 0xEC, 0x80, 0xBF, 2},
        {0xED, 0xED, 0x80, 0x9F, 2}, {0xEE, 0xEF, 0x80, 0xBF, 2}, {0xF0, 0xF0, 0x90, 0xBF, 3},
        {0xF1, 0xF3, 0x80, 0xBF, 3}, {0xF4, 0xF4, 0x80, 0x8F, 3}};
    for (const Lead& lead : kLeads) {
      at_.assign(1, state);
      if (!Over(lead.lo, lead.hi)) return false;
      for (int tail = 0; tail < lead.tails; ++tail)
        if (!(tail == 0 ? Over(lead.first_lo, lead.first_hi) : Over(0x80, 0xBF))) return false;
      for (const int to : at_)
        if (std::find(out.begin(), out.end(), to) == out.end()) out.push_back(to);
    }
    return true;
  }

 private:
  // Moves at_ over every byte of a range; false: some byte has no edge.
  bool Over(int lo, int hi) {
    next_.clear();
    for (const int state : at_) {
      int covered = lo;  // edges of deterministic states are sorted
      for (const ByteEdge& edge : automaton_.bytes(state)) {
        if (edge.hi < covered || edge.lo > hi) continue;
        if (edge.lo > covered) return false;
        covered = edge.hi + 1;
        if (std::find(next_.begin(), next_.end(), edge.to) == next_.end()) next_.push_back(edge.to);
      }
      if (covered <= hi) return false;
    }
    std::swap(at_, next_);
    return at_.size() <= 8;
  }

  const Automaton& automaton_;
  std::vector<int> at_, next_;
};

}  // namespace

Result<Automaton> Automaton::Create(const Grammar& grammar, Budget& budget) {
  ASSIGN_OR_RETURN(Grammar inlined, Inlined(grammar, budget));
  ASSIGN_OR_RETURN(const bool looped, LoopEnds(inlined, budget));
  if (looped) {  // rules that are no longer recursive can be inlined now
    ASSIGN_OR_RETURN(inlined, Inlined(inlined, budget));
  }
  std::vector<Dfa> rules;
  std::size_t states = 0;
  for (const Rule& rule : inlined.rules) {
    ASSIGN_OR_RETURN(Dfa dfa, MakeDeterministic(rule.body, budget));
    states += dfa.states.size();
    RETURN_IF_ERROR(budget.Check(states));
    rules.push_back(std::move(dfa));
  }
  LiveStates live(rules);
  RETURN_IF_ERROR(live.Find(budget));
  if (!live.derives(0))
    return base::InvalidArgument(
        "no text satisfies the grammar: every way through it meets a contradiction or a rule that "
        "never ends (a $ref circle without another alternative)");
  Automaton out;
  for (int rule = 0; rule < base::IntSize(rules); ++rule) {
    const Dfa dfa = WithoutDead(rules[rule], rule, live);
    std::vector<int> renamed(dfa.states.size(), -1);
    int next = out.num_states();
    for (int i = 0; i < dfa.num_states(); ++i)
      if (i == 0 || live(rule, i)) renamed[i] = next++;
    out.Append(dfa, rule, renamed);
  }
  RETURN_IF_ERROR(out.FindFollow(budget));
  RETURN_IF_ERROR(out.FindPlainDepths(budget));
  return out;
}

void Automaton::Append(const Dfa& dfa, int rule, const std::vector<int>& renamed) {
  rule_start_.push_back(num_states());
  for (std::size_t i = 0; i < dfa.states.size(); ++i) {
    if (renamed[i] < 0) continue;
    const Dfa::State& state = dfa.states[i];
    for (const ByteEdge& edge : state.bytes) bytes_.push_back({edge.lo, edge.hi, renamed[edge.to]});
    for (const RuleEdge& edge : state.rules) rules_.push_back({edge.rule, renamed[edge.to]});
    for (const TokenEdge& edge : state.tokens)
      tokens_.push_back({edge.token, edge.negated, renamed[edge.to]});
    bytes_begin_.push_back(static_cast<std::uint32_t>(bytes_.size()));
    rules_begin_.push_back(static_cast<std::uint32_t>(rules_.size()));
    tokens_begin_.push_back(static_cast<std::uint32_t>(tokens_.size()));
    std::uint8_t flags = state.accepting ? kAccepting : 0;
    if (!state.bytes.empty() || !state.tokens.empty()) flags |= kConsumes;
    if (!state.rules.empty()) flags |= kEnters;
    flags_.push_back(flags);
    rule_of_.push_back(rule);
  }
}

Status Automaton::FindFollow(const Budget& budget) {
  const std::size_t count = flags_.size();
  std::vector<ByteSet> first(count);
  std::vector<bool> empty(count);  // an end can be reached without a byte
  for (bool changed = true; changed;) {
    RETURN_IF_ERROR(budget.CheckTime());
    changed = false;
    for (std::size_t s = count; s-- > 0;) {
      const int state = static_cast<int>(s);
      ByteSet set = first[s];
      bool none = accepting(state) || empty[s];
      for (const ByteEdge& edge : bytes(state))
        for (int byte = edge.lo; byte <= edge.hi; ++byte) set.set(byte);
      for (const RuleEdge& edge : rules(state)) {
        const int entered = rule_start_[edge.rule];
        set |= first[entered];
        if (!empty[entered]) continue;
        set |= first[edge.to];
        none = none || empty[edge.to];
      }
      if (set == first[s] && none == empty[s]) continue;
      first[s] = set;
      empty[s] = none;
      changed = true;
    }
  }
  follow_.resize(rule_start_.size());
  for (bool changed = true; changed;) {
    RETURN_IF_ERROR(budget.CheckTime());
    changed = false;
    for (std::size_t s = 0; s < count; ++s) {
      for (const RuleEdge& edge : rules(static_cast<int>(s))) {
        ByteSet set = follow_[edge.rule] | first[edge.to];
        if (empty[edge.to]) set |= follow_[rule_of_[s]];
        if (set == follow_[edge.rule]) continue;
        follow_[edge.rule] = set;
        changed = true;
      }
    }
  }
  return OkStatus();
}

// The greatest consistent depths, by a fixed-point iteration that starts at the maximum.
Status Automaton::FindPlainDepths(const Budget& budget) {
  const std::size_t count = flags_.size();
  plain_depth_.assign(count, 0);
  PlainSteps steps(*this);
  std::vector<std::pair<int, std::vector<int>>> complete;  // states, and those after a character
  std::vector<int> behind;
  for (std::size_t s = 0; s < count; ++s) {
    if (bytes(static_cast<int>(s)).empty() || !steps.From(static_cast<int>(s), behind)) continue;
    complete.emplace_back(static_cast<int>(s), behind);
    plain_depth_[s] = kPlainDepthMax;
  }
  for (bool changed = true; changed;) {
    RETURN_IF_ERROR(budget.CheckTime());
    changed = false;
    for (const auto& [state, next] : complete) {
      std::uint8_t least = kPlainDepthMax;
      for (const int to : next)
        least = std::min(least,
                         static_cast<std::uint8_t>(std::min(plain_depth_[to] + 1, kPlainDepthMax)));
      if (least == plain_depth_[state]) continue;
      plain_depth_[state] = least;
      changed = true;
    }
  }
  return OkStatus();
}

std::size_t Automaton::bytes_held() const {
  return flags_.size() * (sizeof(int) + 2 + 3 * sizeof(std::uint32_t)) +
         bytes_.size() * sizeof(ByteEdge) + rules_.size() * sizeof(RuleEdge) +
         tokens_.size() * sizeof(TokenEdge) + follow_.size() * sizeof(ByteSet);
}

}  // namespace thermocline::grammar
