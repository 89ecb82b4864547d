// Converts a tool's parameters into lists of keys, for templates that write arguments one by one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/grammar/budget.h"
#include "server/chat/tools.h"

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
// no object, is malformed, or takes more than the budget.
Result<std::vector<ArgumentForm>> FormsOfArguments(const Json& parameters, grammar::Budget& budget);

// The budget for the tools of a request together; their grammar has its own.
grammar::Budget ArgumentBudget();

// The forms of a tool's arguments and the types of its keys, found once: a schema of a few bytes
// may need all of the budget.
class ArgumentTypes {
 public:
  // `parameters`: as SchemaOfArguments.
  ArgumentTypes(const Json& parameters, grammar::Budget& budget);

  const Result<std::vector<ArgumentForm>>& forms() const { return forms_; }
  // The type that the schema gives a key, with references resolved; "" if it gives none or several,
  // there is no such key, or the budget did not suffice. If all values of "enum" or "const" are
  // strings, "string".
  std::string TypeOf(const std::string& key) const;

 private:
  using Types = std::map<std::string, std::string, std::less<>>;
  struct FormTypes {
    Types keys;
    std::vector<std::string> others;
  };

  Result<std::vector<ArgumentForm>> forms_;
  std::vector<FormTypes> types_;  // of forms_
  Types plain_;  // of "properties", if it describes the keys completely, or there are no forms
  bool is_plain_ = false;
};

// A tool without listed parameters gets none: small models invent them without end.
Json SchemaOfArguments(const Tool& tool);
// The type of a self-contained schema, as ArgumentTypes::TypeOf.
std::string TypeOfSchema(const Json& schema, grammar::Budget& budget);
// Finds the types of all tools, within one budget.
void FindTypes(std::vector<Tool>& tools);
// The type of a key in a tool's types, which are found now if they have not been yet.
std::string TypeOfParameter(const Tool& tool, const std::string& key);

}  // namespace thermocline::chat
