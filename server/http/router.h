// Maps requests to handlers: the protocols' tables, and the search in them.
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
  const char* method;  // GET includes HEAD
  const char* path;    // "{id}" at its end matches any text, except "" and other routes' paths
  Handler handler;
  bool looks = false;  // a POST that names a model without running it
};

// Another name of a route's path.
struct PathAlias {
  std::string_view alias, path;
};

// An API: its routes, and the form of its errors.
struct Protocol {
  std::span<const Route> routes;
  std::span<const PathAlias> aliases = {};
  const protocol::ErrorShape* errors = &protocol::kOpenAiErrors;
  // Requests below these paths get `errors`, even if there is no such route.
  std::span<const std::string_view> error_paths = {};
  // Requests outside all protocols' paths get `errors` if they have this header; "" = none.
  std::string_view error_header = {};
};

// Thread-safe: constant.
class Router {
 public:
  // Requires: every route and alias is in one protocol only.
  explicit Router(std::vector<Protocol> protocols) : protocols_(std::move(protocols)) {}

  // The template of the request's path, for metrics and logs, never a raw path. "unknown" if there
  // is no such route.
  std::string RouteOf(const HttpRequest& request) const;
  // The form of the request's errors, even if there is no such route.
  const protocol::ErrorShape& ErrorsOf(const HttpRequest& request) const;
  // Returns the route's answer; 404, or 405 with the allowed methods, if there is none. It only
  // reads the service, apart from the handler's own effects.
  Action Answer(server::Service& service, const HttpRequest& request,
                const ResponseHead& head) const;
  // True if the request's route runs the model that its body names.
  bool UsesModel(const HttpRequest& request) const;
  // Requests about the server, which no model answers: a body may name one all the same.
  bool HoldsNoModel(const HttpRequest& request) const;
  // True if the route answers `stream: true` with server-sent events.
  bool AnswersWithEvents(const HttpRequest& request) const;
  // True if the answer shows nothing of a model but what the client may see of all of them.
  bool IsWithoutModel(const HttpRequest& request) const;
  // Method and path of every route.
  std::vector<std::pair<std::string, std::string>> Table() const;

 private:
  // The path without a trailing slash, with aliases replaced.
  std::string RoutePath(const HttpRequest& request) const;
  // Every route whose pattern matches.
  std::vector<const Route*> Find(std::string_view path) const;
  bool IsPath(std::string_view path) const;
  Action NoRoute(const std::string& path, const std::string& method,
                 const ResponseHead& head) const;

  const std::vector<Protocol> protocols_;
};

}  // namespace thermocline::http
