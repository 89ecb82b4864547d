// The description of the HTTP API: openapi.json, completed from the program's tables.
#pragma once

#include <string>

namespace thermocline::routes {

// OpenAPI 3.1. Properties with "x-sampling": "openai" or "llama" get the fields of SamplingFields
// under the names of these APIs.
const std::string& ApiDescription();

}  // namespace thermocline::routes
