// Who may come in: looked at before routing, so that a new route is closed until somebody opens it.
//
//   Host      names this server, else 403: a page whose name an attacker points at our address
//             (DNS rebinding) sends its own name.
//   Origin    is this server's own or an allowed one, else 403: other sites' pages.
//   key       on every route but /health/live, and /metrics if the configuration says so.
//   /admin/   by the admin socket, or with a key marked admin; without keys there is no such route.
//
// On Unix sockets there are no pages: Host and Origin are not looked at.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "server/core/live.h"
#include "server/http/connection.h"
#include "server/http/response.h"

namespace thermocline::http {

// Whoever came in.
struct Caller {
  std::string tenant;  // the name of the key, or the address
  int priority_max;    // of its requests
  bool admin = false;  // may end other callers' requests
};

// The path of a request target, also of the absolute form that proxies send.
std::string PathOf(std::string_view target);

// The value of Access-Control-Allow-Origin for an answer to `request`; "" = none.
std::string AllowedOrigin(const server::Live& live, const Peer& peer, const HttpRequest& request);

// A caller, or what it is told instead: 400, 401, 403, 404, or 204 for a preflight.
std::variant<Caller, HttpResponse> PassGate(const server::Live& live, const Peer& peer,
                                            const HttpRequest& request, const ResponseHead& head);

}  // namespace thermocline::http
