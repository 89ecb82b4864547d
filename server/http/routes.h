// Which request is answered how. Everything but generation is answered at once.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "server/http/generation_plan.h"
#include "server/service.h"

namespace thermocline::http {

struct Routed {
  std::string route;  // the route's template, for metrics: never a raw path
  Action action;
};

// Pure but for reading the service. Never throws.
Routed RouteRequest(server::Service& service, const HttpRequest& request, const ResponseHead& head);

// Method and path of every route there may be; HEAD goes with GET.
std::vector<std::pair<std::string, std::string>> RouteTable();

}  // namespace thermocline::http
