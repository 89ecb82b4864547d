#include "engine/grammar/expression.h"

#include <utility>

namespace thermocline::grammar {

Expression TextOf(std::string text) {
  Expression out;
  out.kind = Expression::Kind::kText;
  out.text = std::move(text);
  return out;
}

Expression SetOf(CodePointSet set) {
  Expression out;
  out.kind = Expression::Kind::kSet;
  out.set = std::move(set);
  return out;
}

Expression EdgeOf(Edge::Kind kind, int value) {
  Expression out;
  out.kind = Expression::Kind::kEdge;
  out.edge = kind;
  out.value = value;
  return out;
}

Expression SequenceOf(std::vector<Expression> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  Expression out;
  out.kind = parts.empty() ? Expression::Kind::kNothing : Expression::Kind::kSequence;
  out.parts = std::move(parts);
  return out;
}

Expression ChoiceOf(std::vector<Expression> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  Expression out;
  out.kind = Expression::Kind::kChoice;
  out.parts = std::move(parts);
  return out;
}

Expression RepeatOf(Expression part, int min, int max) {
  Expression out;
  out.kind = Expression::Kind::kRepeat;
  out.parts.push_back(std::move(part));
  out.min = min;
  out.max = max;
  return out;
}

namespace {

Status EmitRepeat(const Expression& e, int from, Nfa& nfa, int to, Budget& budget) {
  const Expression& part = e.parts[0];
  int at = from;
  for (int i = 0; i < e.min; ++i) {
    const int next = nfa.AddState();
    RETURN_IF_ERROR(Emit(part, at, nfa, next, budget));
    at = next;
  }
  if (e.max == Expression::kNoMax) {
    const int loop = nfa.AddState();
    nfa.Link(at, loop);
    nfa.Link(loop, to);
    return Emit(part, loop, nfa, loop, budget);
  }
  for (int i = e.min; i < e.max; ++i) {
    nfa.Link(at, to);
    const int next = nfa.AddState();
    RETURN_IF_ERROR(Emit(part, at, nfa, next, budget));
    at = next;
  }
  nfa.Link(at, to);
  return OkStatus();
}

}  // namespace

Status Emit(const Expression& e, int from, Nfa& nfa, int to, Budget& budget) {
  RETURN_IF_ERROR(budget.Check(nfa.num_states(), nfa.bytes_held()));
  switch (e.kind) {
    case Expression::Kind::kNothing:
      nfa.Link(from, to);
      break;
    case Expression::Kind::kText:
      nfa.Link(nfa.Literal(from, e.text), to);
      break;
    case Expression::Kind::kSet:
      nfa.AddSet(from, e.set, to);
      break;
    case Expression::Kind::kEdge:
      nfa.AddEdge(from, e.edge, e.value, to);
      break;
    case Expression::Kind::kSequence:
      for (std::size_t i = 0; i < e.parts.size(); ++i) {
        const int next = i + 1 == e.parts.size() ? to : nfa.AddState();
        RETURN_IF_ERROR(Emit(e.parts[i], from, nfa, next, budget));
        from = next;
      }
      break;
    case Expression::Kind::kChoice:
      for (const Expression& part : e.parts) {
        const int begin = nfa.AddState();
        nfa.Link(from, begin);
        RETURN_IF_ERROR(Emit(part, begin, nfa, to, budget));
      }
      break;
    case Expression::Kind::kRepeat:
      return EmitRepeat(e, from, nfa, to, budget);
  }
  return OkStatus();
}

}  // namespace thermocline::grammar
