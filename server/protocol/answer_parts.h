// Parts that the answers of several APIs have in common.
#pragma once

#include <string>

#include "engine/api/request.h"
#include "engine/base/json.h"
#include "server/core/answer_format.h"

namespace thermocline::protocol {

// Returns `prefix` and 24 letters or digits.
std::string NewId(const std::string& prefix);

Json UsageJson(const Usage& usage);

// Returns the answer's timings and its draft counts. Names and units are those of llama.cpp's
// server where it has them: "prompt_n" without cached tokens ("cache_n"), "draft_n",
// "draft_n_accepted", milliseconds. The first token comes from the last prefill step, so
// "predicted_ms" and "predicted_per_second" cover the later tokens.
Json TimingsJson(const Usage& usage);

// Returns the members that OpenAI's API does not have. `default_max_tokens`: the server's token
// limit if it ended the answer, else 0.
Json ExtensionJson(const Usage& usage, int default_max_tokens);

// Returns llama-server's "prompt_progress".
Json ProgressJson(const server::PromptProgress& progress);

// Returns a server-sent event: "data: <one line>\n\n".
std::string DataEvent(const Json& json);

}  // namespace thermocline::protocol
