#include "server/http/exchange.h"

#include <iterator>

#include <boost/beast/core/string.hpp>

#include "engine/base/log.h"
#include "engine/base/random.h"
#include "server/core/request_id.h"
#include "server/core/trace_context.h"
#include "server/http/refusal.h"

namespace thermocline::http {
namespace {

namespace beast = boost::beast;
namespace beast_http = boost::beast::http;
using Clock = std::chrono::steady_clock;

constexpr std::ptrdiff_t kHeadersMax = 100;
constexpr std::size_t kTargetBytesMax = 8 << 10;

std::optional<protocol::ApiError> CheckLimits(const HttpRequest& header) {
  const auto coding = header[beast_http::field::transfer_encoding];
  // Taken for "no body" its bytes would be read as the next request.
  if (!coding.empty() && !beast::iequals(coding, "chunked"))
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

}  // namespace

Exchange::Exchange(server::Service& service, const Peer& peer)
    : service_(service),
      live_(service.live()),
      head_{.version = 11,
            .keep_alive = false,
            .request_id = server::NewRequestId(),
            .arrived = Clock::now()},
      caller_{.tenant = peer.address, .priority_max = 0} {
  ++service_.active_requests;
}

std::optional<HttpResponse> Exchange::OnHeader(const HttpRequest& header, const Peer& peer,
                                               const protocol::ErrorShape& errors) {
  method_ = std::string(header.method_string());
  head_ = {.version = header.version(),
           .keep_alive = header.version() >= 11 && header.keep_alive() &&
                         service_.state() != server::ServiceState::kDraining,
           .request_id = server::RequestIdFrom(header["x-request-id"]),
           .arrived = head_.arrived,
           .cors_origin = AllowedOrigin(*live_, peer, header),
           .errors = &errors};
  if (const auto trace = server::ParseTraceparent(header["traceparent"])) {
    trace_id_ = trace->trace_id;
    head_.traceparent = server::MakeTraceparent(*trace, base::RandomBits64());
  }
  if (const auto beyond = CheckLimits(header)) {
    EndConnection();
    return ErrorResponse(head_, *beyond);
  }
  route_ = "refused";
  const Status page = CheckPage(*live_, peer, header);
  if (!page.ok()) return RefusalResponse(service_, head_, page);
  if (auto preflight = AnswerPreflight(*live_, peer, header, head_)) return preflight;
  auto caller = PassGate(*live_, peer, header);
  if (!caller.ok()) return RefusalResponse(service_, head_, caller.status());
  route_ = "unreadable";
  caller_ = *std::move(caller);
  head_.tenant = caller_.tenant;
  head_.priority_max = caller_.priority_max;
  head_.admin = caller_.admin;
  return std::nullopt;
}

void Exchange::NoteIgnored(const std::vector<std::string>& fields) {
  if (fields.empty()) return;
  head_.ignored_fields = IgnoredFieldsValue(fields);
  service_.ignored_fields().Note(route_, fields);
}

void Exchange::Log(int status, const server::Generation* generation) {
  if (logged_) return;
  service_.metrics().RequestEnded(route_, status);
  logged_ = true;
  if (!live_->config.log_access) return;
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - head_.arrived);
  Json::Object fields = {{"method", method_},     {"route", route_},  {"status", status},
                         {"bytes", body_bytes_},  {"ms", ms.count()}, {"tenant", caller_.tenant},
                         {"id", head_.request_id}};
  if (!trace_id_.empty()) fields.emplace_back("trace", trace_id_);
  if (generation != nullptr) {
    fields.emplace_back("prompt_tokens", generation->prompt_tokens());
    fields.emplace_back("completion_tokens", generation->tokens());
  }
  base::Log(base::LogLevel::kInfo, "access", fields);
}

void Exchange::Release() {
  if (active_) --service_.active_requests;
  active_ = false;
}

}  // namespace thermocline::http
