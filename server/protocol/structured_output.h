// What a request says its answer must be: OpenAI's response_format, llama-server's grammar and
// json_schema, vLLM's structured_outputs and guided_*.
#pragma once

#include <optional>

#include "engine/api/grammar_spec.h"
#include "server/protocol/fields.h"

namespace thermocline::protocol {

// Nothing if the request does not say. Two of them fail `fields` with both names, as does what is
// malformed; whether a grammar can be compiled shows later.
std::optional<GrammarSpec> ReadStructuredOutput(Fields& fields);

}  // namespace thermocline::protocol
