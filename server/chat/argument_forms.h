// A tool's parameters as lists of keys: what a template needs that writes arguments one by one.
#pragma once

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/status.h"

namespace thermocline::chat {

// One way to write the arguments. Schemas are schemas of their own: what they refer to stands in
// their $defs.
struct ArgumentForm {
  struct Key {
    std::string name;
    Json schema;
    bool required = false;
  };
  // Keys that have no name in the schema, and are not among `keys`.
  struct Others {
    Json names;  // a schema of strings
    Json schema;
  };
  std::vector<Key> keys = {};  // in the schema's order
  std::vector<Others> others = {};
  std::int64_t min = 0, max = -1;  // of all keys; -1 = any number
};

// The forms of arguments that satisfy the schema `parameters`, one at least. Unimplemented: what
// cannot be said by keys, or of too many forms; InvalidArgument: the schema allows no object, or is
// malformed.
Result<std::vector<ArgumentForm>> FormsOfArguments(const Json& parameters);

// The type that a schema gives; as TypeOfParameter.
std::string TypeOfSchema(const Json& schema);
// The type that the schema of a parameter gives, references followed; "" if it gives none or
// several, or there is no such parameter. Strings alone in "enum" or "const" give "string".
std::string TypeOfParameter(const Json& parameters, const std::string& name);

}  // namespace thermocline::chat
