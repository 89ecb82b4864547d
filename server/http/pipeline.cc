#include "server/http/pipeline.h"

#include <iterator>

#include <boost/beast/core/string.hpp>

#include "engine/base/strings.h"
#include "server/http/refusal.h"

namespace thermocline::http {
namespace {

namespace beast = boost::beast;
namespace beast_http = boost::beast::http;

constexpr std::ptrdiff_t kHeadersMax = 100;
constexpr std::size_t kTargetBytesMax = 8 << 10;

std::optional<protocol::ApiError> BeyondLimits(const HttpRequest& header) {
  // If an unknown coding counted as "no body", the body would be parsed as the next request.
  const auto [first, last] = header.equal_range(beast_http::field::transfer_encoding);
  if (first != last && (std::next(first) != last || !beast::iequals(first->value(), "chunked")))
    return protocol::ClientError(400, "bad_request",
                                 "the only Transfer-Encoding there is here is chunked");
  const auto encoding = header[beast_http::field::content_encoding];
  if (!encoding.empty() && !beast::iequals(encoding, "identity"))
    return protocol::ClientError(
        415, "unsupported_encoding",
        StrCat("a body in Content-Encoding ",
               base::Shorten(base::ReplaceInvalidUtf8(std::string(encoding)), 32),
               " is not read here; send it as it is"));
  if (std::distance(header.begin(), header.end()) > kHeadersMax)
    return protocol::ClientError(431, "bad_request",
                                 StrCat("the request has more than ", kHeadersMax, " headers"));
  if (header.target().size() > kTargetBytesMax)
    return protocol::ClientError(
        414, "bad_request",
        StrCat("the request target is longer than ", kTargetBytesMax, " bytes"));
  return std::nullopt;
}

std::optional<HttpResponse> CheckLimits(const HeaderContext& context) {
  const auto beyond = BeyondLimits(context.header);
  if (!beyond.has_value()) return std::nullopt;
  context.head.keep_alive = false;
  return ErrorResponse(context.head, *beyond);
}

std::optional<HttpResponse> CheckPageOf(const HeaderContext& context) {
  const Status page = CheckPage(context.reloadable, context.peer, context.header);
  if (page.ok()) return std::nullopt;
  return RefusalResponse(context.service, context.head, page);
}

std::optional<HttpResponse> Preflight(const HeaderContext& context) {
  return AnswerPreflight(context.reloadable, context.peer, context.header, context.head);
}

std::optional<HttpResponse> CheckKey(const HeaderContext& context) {
  auto caller = Authenticate(context.reloadable, context.peer, context.header);
  if (!caller.ok()) return RefusalResponse(context.service, context.head, caller.status());
  context.caller = *std::move(caller);
  return std::nullopt;
}

struct Step {
  std::optional<HttpResponse> (*run)(const HeaderContext&);
  const char* route;  // of its answers, for metrics
};

constexpr Step kHeaderSteps[] = {
    {CheckLimits, "unreadable"},
    {CheckPageOf, "refused"},
    {Preflight, "refused"},
    {CheckKey, "refused"},
};

}  // namespace

std::optional<HeaderAnswer> CheckHeader(const HeaderContext& context) {
  for (const Step& step : kHeaderSteps)
    if (auto response = step.run(context))
      return HeaderAnswer{.response = *std::move(response), .route = step.route};
  return std::nullopt;
}

}  // namespace thermocline::http
