#include "server/http/request_context.h"

#include "engine/base/log.h"
#include "engine/base/random.h"
#include "server/core/held_model.h"
#include "server/core/request_id.h"
#include "server/core/trace_context.h"
#include "server/http/pipeline.h"

namespace thermocline::http {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

RequestContext::RequestContext(server::Service& service, const Peer& peer)
    : service_(service),
      reloadable_(service.reloadable()),
      head_{.version = 11,
            .keep_alive = false,
            .request_id = server::NewRequestId(),
            .arrived = Clock::now()},
      caller_{.tenant = peer.address, .priority_max = 0} {
  ++service_.active_requests;
}

std::optional<HttpResponse> RequestContext::OnHeader(const HttpRequest& header, const Peer& peer,
                                                     const protocol::ErrorShape& errors) {
  method_ = std::string(header.method_string());
  head_ = {.version = header.version(),
           .keep_alive = header.version() >= 11 && header.keep_alive() &&
                         service_.state() != server::ServiceState::kDraining,
           .request_id = server::RequestIdFrom(header["x-request-id"]),
           .arrived = head_.arrived,
           .cors_origin = AllowedOrigin(*reloadable_, peer, header),
           .errors = &errors};
  if (const auto trace = server::ParseTraceparent(header["traceparent"])) {
    trace_id_ = trace->trace_id;
    head_.traceparent = server::MakeTraceparent(*trace, base::RandomBits64());
  }
  if (auto answer = CheckHeader({service_, *reloadable_, header, peer, head_, caller_})) {
    route_ = answer->route;
    return std::move(answer->response);
  }
  head_.tenant = caller_.tenant;
  head_.priority_max = caller_.priority_max;
  head_.models = caller_.models;
  head_.admin = caller_.admin;
  return std::nullopt;
}

void RequestContext::ReportIgnored(const std::vector<std::string>& fields) {
  if (fields.empty()) return;
  head_.ignored_fields = IgnoredFieldsValue(fields);
  service_.ignored_fields().Count(route_, fields);
}

void RequestContext::Log(int status, const server::Generation* generation) {
  if (logged_) return;
  model_->metrics().RequestEnded(route_, status);
  logged_ = true;
  if (!reloadable_->config.log_access) return;
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - head_.arrived);
  Json::Object fields = {{"method", method_},     {"route", route_},  {"status", status},
                         {"bytes", body_bytes_},  {"ms", ms.count()}, {"tenant", caller_.tenant},
                         {"id", head_.request_id}};
  if (server::IsOneOfSeveral(*model_)) fields.emplace_back("model", model_->model_name());
  if (!trace_id_.empty()) fields.emplace_back("trace", trace_id_);
  if (generation != nullptr) {
    fields.emplace_back("prompt_tokens", generation->prompt_tokens());
    fields.emplace_back("completion_tokens", generation->tokens());
  }
  base::Log(base::LogLevel::kInfo, "access", fields);
}

void RequestContext::Release() {
  if (active_) --service_.active_requests;
  active_ = false;
}

}  // namespace thermocline::http
