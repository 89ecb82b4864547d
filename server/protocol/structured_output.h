// Reads the requested format of an answer: OpenAI's response_format, llama-server's grammar and
// json_schema, vLLM's structured_outputs and guided_*.
#pragma once

#include <optional>

#include "engine/api/grammar_spec.h"
#include "server/protocol/fields.h"

namespace thermocline::protocol {

// Returns nullopt if the request gives none. Two formats fail `fields` with both names, and so does
// a malformed one; errors of a grammar appear only when it is compiled.
std::optional<GrammarSpec> ReadStructuredOutput(Fields& fields);

}  // namespace thermocline::protocol
