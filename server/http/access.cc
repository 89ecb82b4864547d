#include "server/http/access.h"

#include <algorithm>

#include "engine/api/request.h"
#include "engine/base/bytes.h"

namespace thermocline::http {
namespace {

using server::ReloadableConfig;
namespace beast = boost::beast;
namespace beast_http = boost::beast::http;

// The headers that pages of allowed origins may send. Browsers do not let "*" include
// Authorization. Source: the Fetch standard, and the headers of OpenAI's and Anthropic's JavaScript
// clients.
constexpr const char* kCorsHeaders =
    "Authorization, Content-Type, X-Request-Id, Traceparent, Tracestate, OpenAI-Organization, "
    "OpenAI-Project, OpenAI-Beta, X-Stainless-Arch, X-Stainless-Async, X-Stainless-Custom-Poll-"
    "Interval, X-Stainless-Helper, X-Stainless-Helper-Method, X-Stainless-Lang, X-Stainless-OS, "
    "X-Stainless-Package-"
    "Version, X-Stainless-Poll-Helper, X-Stainless-Retry-Count, X-Stainless-Runtime, X-Stainless-"
    "Runtime-Version, X-Stainless-Timeout, X-Api-Key, Anthropic-Version, Anthropic-Beta, Anthropic-"
    "Dangerous-Direct-Browser-Access";
constexpr const char* kCorsMethods = "GET, HEAD, POST, DELETE, OPTIONS";

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = base::ToLower(c);
  return lower;
}

// "example.org:8080" -> "example.org", "[::1]:80" -> "[::1]"; "" for malformed hosts.
std::string WithoutPort(const std::string& host) {
  const std::size_t end = host.starts_with('[') ? host.find(']') + 1 : host.find(':');
  if (end == 0 || end >= host.size()) return end == 0 ? "" : host;
  const std::string_view port = std::string_view(host).substr(end + 1);
  const bool digits =
      std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; });
  return host[end] == ':' && digits ? host.substr(0, end) : "";
}

bool Contains(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end() ||
         std::find(list.begin(), list.end(), "*") != list.end();
}

bool IsOurHost(const ReloadableConfig& reloadable, const Peer& peer,
               std::string_view host_and_port) {
  const std::string host = WithoutPort(Lower(host_and_port));
  if (host.empty()) return false;
  if (host == "localhost" || host == "127.0.0.1" || host == "[::1]") return true;
  // An address cannot be rebound like a name.
  if (host == peer.local_address || host == StrCat("[", peer.local_address, "]")) return true;
  return Contains(reloadable.allowed_hosts, host);
}

// The host of "http://host/path"; "" for other forms.
std::string_view TargetHost(std::string_view target) {
  const std::size_t scheme = target.find("://");
  if (scheme == std::string_view::npos || target[0] == '/') return {};
  const std::string_view rest = target.substr(scheme + 3);
  return rest.substr(0, rest.find('/'));
}

bool IsOwnOrigin(std::string_view origin, std::string_view host) {
  const std::size_t end = origin.find("://");
  const std::string scheme = Lower(origin.substr(0, end));
  return end != std::string_view::npos && (scheme == "http" || scheme == "https") &&
         Lower(origin.substr(end + 3)) == Lower(host);
}

// A proxy may have parsed such a request differently (RFC 9112, 6.1).
Status CheckFraming(const HttpRequest& request) {
  if (request.version() >= 11 || request.count(beast_http::field::transfer_encoding) == 0)
    return OkStatus();
  return base::InvalidArgument("a body in chunks needs HTTP/1.1").WithReason(Reason::kMalformed);
}

Status CheckHost(const ReloadableConfig& reloadable, const Peer& peer, const HttpRequest& request) {
  if (!peer.on_network) return OkStatus();
  const auto hosts = request.count(beast_http::field::host);
  if (hosts > 1 || (hosts == 0 && request.version() >= 11))
    return base::InvalidArgument("a request has one Host header").WithReason(Reason::kMalformed);
  const std::string_view in_target = TargetHost(request.target());
  const bool ours = (hosts == 0 || IsOurHost(reloadable, peer, request[beast_http::field::host])) &&
                    (in_target.empty() || IsOurHost(reloadable, peer, in_target));
  if (ours) return OkStatus();
  return base::PermissionDenied(
             "the Host of the request is no name of this server; server.allowed_hosts lists "
             "further ones")
      .WithReason(Reason::kHostNotAllowed);
}

Status CheckOrigin(const ReloadableConfig& reloadable, const Peer& peer,
                   const HttpRequest& request) {
  const auto origin = request.find(beast_http::field::origin);
  if (!peer.on_network || origin == request.end()) return OkStatus();
  if (request.count(beast_http::field::origin) > 1)
    return base::InvalidArgument("a request has one Origin header").WithReason(Reason::kMalformed);
  const bool allowed = !AllowedOrigin(reloadable, peer, request).empty();
  if (allowed || IsOwnOrigin(origin->value(), request[beast_http::field::host])) return OkStatus();
  return base::PermissionDenied(
             "pages of this Origin may not call this server; server.allowed_origins lists those "
             "that may")
      .WithReason(Reason::kOriginNotAllowed);
}

// The key of "Authorization: Bearer KEY", or of "x-api-key: KEY", which Anthropic's clients send;
// nullopt if there is none, or more than one of either.
std::optional<std::string_view> BearerKey(const HttpRequest& request) {
  if (request.count(beast_http::field::authorization) == 0 && request.count("x-api-key") == 1) {
    const auto key = request["x-api-key"];
    return std::string_view(key.data(), key.size());
  }
  if (request.count(beast_http::field::authorization) != 1) return std::nullopt;
  return server::BearerKey(request[beast_http::field::authorization]);
}

Result<Caller> Identify(const ReloadableConfig& reloadable, const HttpRequest& request) {
  const auto key = BearerKey(request);
  if (!key.has_value())
    return base::Unauthenticated(
        "an API key is needed, as in the header Authorization: Bearer KEY");
  const auto identity = reloadable.keys.Check(*key);
  if (!identity.has_value()) return base::Unauthenticated("the API key is not known here");
  return Caller{.tenant = identity->name,
                .priority_max = identity->priority_max,
                .admin = identity->admin,
                .known = true,
                .models = identity->models};
}

// The chat page has no secrets, and a browser opens it without a key. The page asks for one when a
// call needs it.
bool IsPage(const HttpRequest& request, std::string_view path) {
  return path == "/" &&
         (request.method() == beast_http::verb::get || request.method() == beast_http::verb::head);
}

}  // namespace

std::string PathOf(std::string_view target) {
  const std::size_t scheme = target.find("://");
  if (scheme != std::string_view::npos && target[0] != '/') {
    const std::size_t slash = target.find('/', scheme + 3);
    target = slash == std::string_view::npos ? "/" : target.substr(slash);
  }
  return std::string(target.substr(0, target.find('?')));
}

std::string AllowedOrigin(const ReloadableConfig& reloadable, const Peer& peer,
                          const HttpRequest& request) {
  const auto origin = request.find(beast_http::field::origin);
  if (!peer.on_network || origin == request.end()) return "";
  std::string value(origin->value());
  for (const std::string& allowed : reloadable.allowed_origins) {
    if (allowed == "*") return "*";
    if (server::OriginMatches(allowed, Lower(value))) return value;
  }
  return "";
}

bool HasBody(const HttpRequest& header) {
  const auto length = header.find(beast_http::field::content_length);
  return header.chunked() || (length != header.end() && length->value() != "0");
}

Status CheckPage(const ReloadableConfig& reloadable, const Peer& peer, const HttpRequest& request) {
  RETURN_IF_ERROR(CheckFraming(request));
  RETURN_IF_ERROR(CheckHost(reloadable, peer, request));
  return CheckOrigin(reloadable, peer, request);
}

std::optional<HttpResponse> AnswerPreflight(const ReloadableConfig& reloadable, const Peer& peer,
                                            const HttpRequest& request, const ResponseHead& head) {
  const bool asks = request.method() == beast_http::verb::options &&
                    request.find(beast_http::field::access_control_request_method) != request.end();
  if (!asks || AllowedOrigin(reloadable, peer, request).empty()) return std::nullopt;
  HttpResponse response = MakeResponse(head, 204, "text/plain", "");
  response.set(beast_http::field::access_control_allow_methods, kCorsMethods);
  response.set(beast_http::field::access_control_allow_headers, kCorsHeaders);
  response.set(beast_http::field::access_control_max_age, "600");
  return response;
}

Result<Caller> Authenticate(const ReloadableConfig& reloadable, const Peer& peer,
                            const HttpRequest& request) {
  Caller caller{.tenant = peer.address,
                .priority_max = kPriorityMax,
                .admin = peer.admin,
                .known = peer.admin};
  if (peer.admin) return caller;
  const std::string path = PathOf(request.target());
  // These need no key only without a body, so that clients without a key take no memory for bodies.
  const bool open =
      !HasBody(request) && (path == "/health/live" || IsPage(request, path) ||
                            (path == "/metrics" && !reloadable.config.metrics_require_key));
  const bool admin_only = path == "/admin" || path.starts_with("/admin/");
  if (reloadable.needs_keys() && !open) {
    ASSIGN_OR_RETURN(caller, Identify(reloadable, request));
  }
  if (!admin_only || caller.admin) return caller;
  if (reloadable.needs_keys()) return base::PermissionDenied("this key is not marked admin");
  return base::NotFound(
      "the routes below /admin are on server.admin_socket, or for keys marked admin");
}

}  // namespace thermocline::http
