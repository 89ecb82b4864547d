#include "server/http/router.h"

#include <algorithm>

#include "engine/base/strings.h"
#include "server/http/access.h"
#include "server/http/refusal.h"

namespace thermocline::http {
namespace {

using protocol::ClientError;
namespace beast_http = boost::beast::http;

bool IsBelow(std::string_view path, std::string_view folder) {
  return path.starts_with(folder) &&
         (folder.ends_with('/') || path.size() == folder.size() || path[folder.size()] == '/');
}

}  // namespace

std::string Router::RoutePath(const HttpRequest& request) const {
  std::string path = PathOf(request.target());
  if (path.size() > 1 && path.ends_with('/')) path.pop_back();
  for (const Protocol& protocol : protocols_)
    for (const PathAlias& each : protocol.aliases)
      if (each.alias == path) return std::string(each.path);
  return path;
}

bool Router::IsPath(std::string_view path) const {
  return std::any_of(protocols_.begin(), protocols_.end(), [path](const Protocol& protocol) {
    return std::any_of(protocol.routes.begin(), protocol.routes.end(),
                       [path](const Route& route) { return route.path == path; });
  });
}

std::vector<const Route*> Router::Find(std::string_view path) const {
  const bool exact = IsPath(path);
  std::vector<const Route*> found;
  for (const Protocol& protocol : protocols_)
    for (const Route& route : protocol.routes) {
      const std::string_view pattern = route.path;
      const std::size_t brace = pattern.find('{');
      const bool fits = brace == std::string_view::npos || exact
                            ? path == pattern
                            : path.size() > brace && path.starts_with(pattern.substr(0, brace));
      if (fits) found.push_back(&route);
    }
  return found;
}

std::string Router::RouteOf(const HttpRequest& request) const {
  const auto found = Find(RoutePath(request));
  return found.empty() ? "unknown" : found.front()->path;
}

const protocol::ErrorShape& Router::ErrorsOf(const HttpRequest& request) const {
  const std::string path = PathOf(request.target());
  for (const Protocol& protocol : protocols_)
    for (const std::string_view folder : protocol.error_paths)
      if (IsBelow(path, folder)) return *protocol.errors;
  for (const Protocol& protocol : protocols_)
    if (!protocol.error_header.empty() && request.count(protocol.error_header) > 0)
      return *protocol.errors;
  return protocol::kOpenAiErrors;
}

Action Router::Answer(server::Service& service, const HttpRequest& request,
                      const ResponseHead& head) const {
  const std::string path = RoutePath(request);
  const std::string method(request.method_string());
  const std::string_view wanted = method == "HEAD" ? "GET" : std::string_view(method);
  for (const Route* route : Find(path))
    if (route->method == wanted) return route->handler(service, request, head);
  return NoRoute(path, method, head);
}

Action Router::NoRoute(const std::string& path, const std::string& method,
                       const ResponseHead& head) const {
  std::string allowed;
  for (const Route* route : Find(path))
    allowed += StrCat(allowed.empty() ? "" : ", ", route->method,
                      std::string_view(route->method) == "GET" ? ", HEAD" : "");
  if (allowed.empty())
    return ErrorResponse(head, ClientError(404, "not_found",
                                           StrCat("there is no route ", method, " ",
                                                  base::ReplaceInvalidUtf8(path))));
  allowed += ", OPTIONS";
  HttpResponse response =
      method == "OPTIONS" ? MakeResponse(head, 204, "text/plain", "")
                          : ErrorResponse(head, ClientError(405, "method_not_allowed",
                                                            StrCat(method, " is not allowed on ",
                                                                   path, "; allowed: ", allowed)));
  response.set(beast_http::field::allow, allowed);
  return response;
}

bool Router::IsWithoutModel(const HttpRequest& request) const {
  const std::string path = RouteOf(request);
  static constexpr std::string_view kPaths[] = {"/",          "/metrics",  "/openapi.json",
                                                "/v1/models", "/api/tags", "/api/ps",
                                                "/models",    "/health",   "/api/version"};
  return path == "unknown" || path.starts_with("/health/") || path == "/v1/models/{id}" ||
         std::find(std::begin(kPaths), std::end(kPaths), path) != std::end(kPaths);
}

bool Router::HoldsNoModel(const HttpRequest& request) const {
  static constexpr std::string_view kPaths[] = {"/api/pull", "/admin/cancel", "/admin/reload",
                                                "/admin/drain", "/admin/log-level"};
  const std::string path = RouteOf(request);
  return std::find(std::begin(kPaths), std::end(kPaths), path) != std::end(kPaths);
}

bool Router::AnswersWithEvents(const HttpRequest& request) const {
  static constexpr std::string_view kPaths[] = {"/v1/chat/completions", "/v1/completions",
                                                "/v1/responses",        "/v1/messages",
                                                "/completion",          "/infill"};
  const std::string path = RouteOf(request);
  return request.method() == beast_http::verb::post &&
         std::find(std::begin(kPaths), std::end(kPaths), path) != std::end(kPaths);
}

bool Router::UsesModel(const HttpRequest& request) const {
  const auto found = Find(RoutePath(request));
  return std::any_of(found.begin(), found.end(), [&](const Route* route) {
    return !route->looks && std::string_view(route->method) == "POST" &&
           request.method() == beast_http::verb::post;
  });
}

std::vector<std::pair<std::string, std::string>> Router::Table() const {
  std::vector<std::pair<std::string, std::string>> table;
  for (const Protocol& protocol : protocols_)
    for (const Route& route : protocol.routes) table.emplace_back(route.method, route.path);
  return table;
}

}  // namespace thermocline::http
