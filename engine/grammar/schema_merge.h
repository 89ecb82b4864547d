// JSON schemas in normal form: references followed, conjunctions merged, annotations removed.
#pragma once

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/grammar/budget.h"

namespace thermocline::grammar {

// The keywords of a schema that apply together. Sub-schemas stay as JSON.
struct MergedSchema {
  bool never = false;              // no value satisfies it
  std::vector<std::string> types;  // of the seven; empty = any
  bool has_enum = false;
  Json::Array enumeration;  // const is an enumeration of one
  // The alternatives of one anyOf or oneOf.
  struct Choice {
    bool one_of;
    Json::Array alternatives;
  };
  std::vector<Choice> choices;
  Json::Object properties, pattern_properties;
  Json additional;      // additionalProperties; null = absent
  bool closed = false;  // unevaluatedProperties: false
  Json property_names;  // null = any
  std::vector<std::string> required;
  std::int64_t min_properties = 0, max_properties = -1;
  Json::Array prefix_items;
  Json items;  // null = any
  std::int64_t min_items = 0, max_items = -1;
  std::vector<std::string> patterns, formats;
  std::int64_t min_length = 0, max_length = -1;
  Json minimum, maximum, exclusive_minimum, exclusive_maximum;  // null = none
  std::int64_t multiple_of = 0;
};

// References are looked up in `root`. Unimplemented names an unsupported keyword; InvalidArgument:
// a malformed one or a dangling reference; or as Budget::Check.
Result<MergedSchema> MergeSchema(const Json& schema, const Json& root, Budget& budget);
// The same schema as JSON, in a canonical form: equal schemas give equal JSON.
Json ToJson(const MergedSchema& schema);

}  // namespace thermocline::grammar
