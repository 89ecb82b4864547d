// Objects of a JSON schema, as states.
#pragma once

#include "engine/grammar/nfa.h"
#include "engine/grammar/schema_merge.h"

namespace thermocline::grammar {

// Supplies the rules for values and for the text between them.
class ValueRules {
 public:
  virtual ~ValueRules() = default;
  virtual Result<int> RuleOf(const Json& schema) = 0;
  virtual int Space() = 0;
  virtual int AnyString() = 0;
  virtual Budget& budget() = 0;
};

// Adds the objects that satisfy `schema` between two states. Errors as GrammarOfSchema.
Status AddObject(const MergedSchema& schema, int from, Nfa& nfa, int to, ValueRules& rules);

}  // namespace thermocline::grammar
