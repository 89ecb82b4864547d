// JSON schemas as grammars of the texts that satisfy them.
//
// Keys come in the schema's order. An object with named properties is closed unless
// additionalProperties opens it; a schema without a type whose keywords apply to one type of value
// has that type. White space is bounded: between tokens of JSON nothing, a blank, or one or two
// line ends and up to 20 blanks. docs/structured-output.md lists supported and rejected keywords.
// Source: the shape of llama.cpp's json_schema_to_grammar for white space; keywords as in JSON
// Schema 2020-12.
#pragma once

#include "engine/base/json.h"
#include "engine/grammar/budget.h"
#include "engine/grammar/grammar.h"

namespace thermocline::grammar {

// InvalidArgument or Unimplemented names the wrong or unsupported part of the schema; or as
// Budget::Check.
Result<Grammar> GrammarOfSchema(const Json& schema, Budget& budget);

// The form of strings in a text that is not JSON.
struct BareForm {
  std::vector<std::string> stops = {};   // substrings that a string must not contain
  std::vector<std::string> except = {};  // excluded whole strings
  char quote = '\0';                     // if set, it and backslashes are escaped by a backslash
};

// The strings that a schema of type string allows, in that form. Unimplemented: the schema is a
// choice between other schemas; otherwise errors as GrammarOfSchema.
Result<Grammar> GrammarOfBareStrings(const Json& schema, const BareForm& form, Budget& budget);

}  // namespace thermocline::grammar
