// Which request is answered how. Everything but generation is answered at once.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "server/core/service.h"
#include "server/http/generation_plan.h"

namespace thermocline::http {

// The template of the request's path, for metrics and logs: never a raw path. "unknown": there is
// none.
std::string RouteOf(const HttpRequest& request);

// Pure but for reading the service.
Action RouteRequest(server::Service& service, const HttpRequest& request, const ResponseHead& head);

// Method and path of every route there may be; HEAD goes with GET.
std::vector<std::pair<std::string, std::string>> RouteTable();

}  // namespace thermocline::http
