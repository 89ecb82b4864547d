// Converts a tool's parameters into lists of keys, for templates that write arguments one by one.
#pragma once

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/status.h"

namespace thermocline::chat {

// One way to write the arguments. Its schemas are self-contained: their references point into their
// own $defs.
struct ArgumentForm {
  struct Key {
    std::string name;
    Json schema;
    bool required = false;
  };
  // Keys without a name in the schema, not among `keys`.
  struct Others {
    Json names;  // a schema of strings
    Json schema;
  };
  std::vector<Key> keys = {};  // in the schema's order
  std::vector<Others> others = {};
  std::int64_t min = 0, max = -1;  // of all keys; -1 = any number
};

// The forms of arguments that satisfy the schema `parameters`, at least one. Unimplemented: the
// schema cannot be expressed by keys, or needs too many forms. InvalidArgument: the schema allows
// no object, or is malformed.
Result<std::vector<ArgumentForm>> FormsOfArguments(const Json& parameters);

// The type of a schema, as in TypeOfParameter.
std::string TypeOfSchema(const Json& schema);
// The type that the schema of a parameter gives, with references resolved; "" if it gives none or
// several, or there is no such parameter. If all values of "enum" or "const" are strings, "string".
std::string TypeOfParameter(const Json& parameters, const std::string& name);

}  // namespace thermocline::chat
