// The description of the HTTP API: openapi.json with what the tables of the program say.
#pragma once

#include <string>

namespace thermocline::routes {

// OpenAPI 3.1. Where properties have "x-sampling": "openai" or "llama", it has the fields of
// SamplingFields by the names of these APIs.
const std::string& ApiDescription();

}  // namespace thermocline::routes
