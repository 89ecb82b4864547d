// Checks access before routing, so that a new route is protected by default.
//
//   Host      names this server, else 403: a page whose name an attacker points at our address
//             (DNS rebinding) sends its own name.
//   Origin    is this server's own or an allowed one, else 403: other sites' pages.
//   key       on every route but /health/live, and /metrics if the configuration says so.
//   /admin/   by the admin socket, or with a key marked admin; without keys there is no such route.
//
// Web pages cannot use Unix sockets, so Host and Origin are not checked there.
#pragma once

#include <optional>
#include <string>

#include "server/core/reloadable_config.h"
#include "server/http/connection.h"
#include "server/http/response.h"

namespace thermocline::http {

// The authenticated client.
struct Caller {
  std::string tenant;  // the name of the key, or the address
  int priority_max;    // the highest priority of its requests
  bool admin = false;  // may cancel other callers' requests
  bool known = false;  // has a key, or uses the admin socket
  server::ModelRights models = {};
};

// The path of a request target, which may be in the absolute form that proxies send.
std::string PathOf(std::string_view target);

// The value of Access-Control-Allow-Origin for an answer to `request`; "" = none.
std::string AllowedOrigin(const server::ReloadableConfig& reloadable, const Peer& peer,
                          const HttpRequest& request);

// Checks Host and Origin. InvalidArgument or PermissionDenied.
Status CheckPage(const server::ReloadableConfig& reloadable, const Peer& peer,
                 const HttpRequest& request);

// True if a body follows the header.
bool HasBody(const HttpRequest& header);

// The answer to a preflight request of an allowed origin's page, which has no key yet; nullopt if
// the request is no preflight. Requires: CheckPage passed.
std::optional<HttpResponse> AnswerPreflight(const server::ReloadableConfig& reloadable,
                                            const Peer& peer, const HttpRequest& request,
                                            const ResponseHead& head);

// Checks the key, and access to /admin/. Unauthenticated, PermissionDenied, or NotFound (below
// /admin, without keys).
Result<Caller> Authenticate(const server::ReloadableConfig& reloadable, const Peer& peer,
                            const HttpRequest& request);

}  // namespace thermocline::http
