// The body of a request to OpenAI's API.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "loadtest/workload/request.h"

namespace thermocline::loadtest {

enum class Route { kChat, kCompletions };
inline constexpr std::array<std::string_view, 2> kRouteNames = {"chat", "completions"};

struct BodyOptions {
  Route route = Route::kChat;
  std::string model = {};
  std::optional<double> temperature = {};
  std::string extra = {};  // a JSON object whose members are added
};

std::string RequestBody(const Request& request, const BodyOptions& options);

}  // namespace thermocline::loadtest
