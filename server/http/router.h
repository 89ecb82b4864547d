// Which request is answered how: the tables of the protocols, and the search in them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/core/service.h"
#include "server/http/generation_plan.h"
#include "server/protocol/error.h"

namespace thermocline::http {

// Answers at once, or plans a generation.
using Handler = Action (*)(server::Service& service, const HttpRequest& request,
                           const ResponseHead& head);

struct Route {
  const char* method;  // HEAD goes with GET
  const char* path;    // "{id}" at its end stands for anything but nothing and other routes' paths
  Handler handler;
};

// Another name of a route's path.
struct PathAlias {
  std::string_view alias, path;
};

// An API that clients speak: its routes, and the shape of its errors.
struct Protocol {
  std::span<const Route> routes;
  std::span<const PathAlias> aliases = {};
  const protocol::ErrorShape* errors = &protocol::kOpenAiErrors;
  // Requests below these paths get `errors`, whether there is such a route or not.
  std::span<const std::string_view> error_paths = {};
  // Requests that no protocol's paths claim get `errors` if they have this header; "" = none.
  std::string_view error_header = {};
};

// Thread-safe: constant.
class Router {
 public:
  // A route or alias is in one protocol.
  explicit Router(std::vector<Protocol> protocols) : protocols_(std::move(protocols)) {}

  // The template of the request's path, for metrics and logs: never a raw path. "unknown": there is
  // none.
  std::string RouteOf(const HttpRequest& request) const;
  // The shape of the request's errors, also if there is no such route.
  const protocol::ErrorShape& ErrorsOf(const HttpRequest& request) const;
  // Returns the route's answer; 404 or 405 with the methods there are if there is none. Pure but
  // for reading the service.
  Action Answer(server::Service& service, const HttpRequest& request,
                const ResponseHead& head) const;
  // Method and path of every route.
  std::vector<std::pair<std::string, std::string>> Table() const;

 private:
  // The path without a slash at its end, by the name that the tables have for it.
  std::string RoutePath(const HttpRequest& request) const;
  // Every route whose pattern fits.
  std::vector<const Route*> Find(std::string_view path) const;
  bool IsPath(std::string_view path) const;
  Action NoRoute(const std::string& path, const std::string& method,
                 const ResponseHead& head) const;

  const std::vector<Protocol> protocols_;
};

}  // namespace thermocline::http
