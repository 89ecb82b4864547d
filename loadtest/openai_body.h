// The body of a request to OpenAI's API.
#pragma once

#include <string>

#include "loadtest/request.h"

namespace thermocline::loadtest {

enum class Route { kChat, kCompletions };

struct BodyOptions {
  Route route = Route::kChat;
  std::string model = {};
  std::optional<double> temperature = {};
  std::string extra = {};  // a JSON object whose members are added
};

std::string RequestBody(const Request& request, const BodyOptions& options);

}  // namespace thermocline::loadtest
