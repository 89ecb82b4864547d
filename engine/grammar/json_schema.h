// JSON schemas as grammars of the texts that satisfy them.
//
// Keys come in the schema's order. An object whose properties are named is closed unless
// additionalProperties opens it; a schema without a type whose keywords speak of one kind of value
// takes that kind. White space is bounded: between tokens of JSON nothing, a blank, or one or two
// line ends and up to 20 blanks. docs/structured-output.md has what is supported and what is
// refused. Source: the shape of llama.cpp's json_schema_to_grammar for white space; keywords as in
// JSON Schema 2020-12.
#pragma once

#include "engine/base/json.h"
#include "engine/grammar/budget.h"
#include "engine/grammar/grammar.h"

namespace thermocline::grammar {

// InvalidArgument or Unimplemented: what of the schema is wrong or not supported, by name; or as
// Budget::Check.
Result<Grammar> GrammarOfSchema(const Json& schema, Budget& budget);

// The form of strings in a text that is no JSON.
struct BareForm {
  std::vector<std::string> stops = {};   // what a string does not contain
  std::vector<std::string> except = {};  // strings that it is not
  char quote = '\0';  // with one, it and backslashes have a backslash before them
};

// The strings that a schema of type string allows, in that form. Unimplemented: the schema is a
// choice between others; else errors as GrammarOfSchema.
Result<Grammar> GrammarOfBareStrings(const Json& schema, const BareForm& form, Budget& budget);

}  // namespace thermocline::grammar
