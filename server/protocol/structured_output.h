// Reads the form that a request wants its answer to have: OpenAI's response_format, llama-server's
// grammar and json_schema, vLLM's structured_outputs and guided_*.
#pragma once

#include <optional>

#include "engine/api/grammar_spec.h"
#include "server/protocol/fields.h"

namespace thermocline::protocol {

// Returns nothing if the request gives none. Two forms fail `fields` with both names, and a
// malformed one fails it too; whether a grammar can be compiled shows later.
std::optional<GrammarSpec> ReadStructuredOutput(Fields& fields);

}  // namespace thermocline::protocol
