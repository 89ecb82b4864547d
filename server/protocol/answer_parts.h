// Parts that the answers of several APIs have in common.
#pragma once

#include <string>

#include "engine/api/request.h"
#include "engine/base/json.h"

namespace thermocline::protocol {

// `prefix` and 24 letters or digits.
std::string NewId(const std::string& prefix);

Json UsageJson(const Usage& usage);

// Returns the times of the answer and the counts of its drafts. Names and units are those of
// llama.cpp's server where it has them: "prompt_n" without cached tokens ("cache_n"), "draft_n",
// "draft_n_accepted", milliseconds. The first token comes from the prompt's last step:
// "predicted_ms" and "predicted_per_second" are of those after it.
Json TimingsJson(const Usage& usage);

// Returns the members that OpenAI's API does not have. `default_max_tokens`: the server's bound, if
// it ended the answer; 0: it did not.
Json ExtensionJson(const Usage& usage, int default_max_tokens);

// A server-sent event: "data: <one line>\n\n".
std::string DataEvent(const Json& json);

}  // namespace thermocline::protocol
