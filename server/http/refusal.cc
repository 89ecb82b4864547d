#include "server/http/refusal.h"

namespace thermocline::http {
namespace {

using openai::ClientError;
using server::Service;
using server::ServiceState;

// The field of the body that the engine found fault with.
const char* ParamOf(const Status& status) {
  if (status.message().starts_with("logit_bias")) return "logit_bias";
  if (status.message().starts_with("ffn_mode")) return "x_thermocline.ffn_mode";
  if (status.message().starts_with("spec.mode")) return "x_thermocline.speculation";
  if (status.message().starts_with("draft_tokens")) return "x_thermocline.draft_tokens";
  return "";
}

// As the metrics call it.
const char* ReasonOf(const Service& service, const Status& status, int http_status) {
  const bool tokens = status.message().starts_with("the queue is full: prompts");
  if (http_status == 429) return tokens ? "prefill_budget" : "queue_full";
  if (http_status == 504) return "deadline";
  if (http_status != 503) return "bad_request";
  return service.state() == ServiceState::kDraining ? "draining" : "loading";
}

}  // namespace

Status NotReady(const Service& service) { return service.Readiness(); }

HttpResponse RefusalResponse(Service& service, const ResponseHead& head, const Status& status) {
  const openai::ApiError error = openai::FromStatus(status, ParamOf(status));
  const bool wait = error.http_status == 429 || error.http_status == 503;
  service.metrics().RequestRejected(ReasonOf(service, status, error.http_status));
  return ErrorResponse(head, error, wait ? service.RetryAfterSeconds() : 0);
}

HttpResponse UnknownModel(const Service& service, const ResponseHead& head,
                          const std::string& name) {
  constexpr std::size_t kNameBytesMax = 128;
  const std::string shown =
      name.size() <= kNameBytesMax
          ? name
          : StrCat(base::ReplaceInvalidUtf8(name.substr(0, kNameBytesMax)), "...");
  return ErrorResponse(
      head, ClientError(404, "model_not_found",
                        StrCat("the model '", shown, "' does not exist; this server has '",
                               service.model_name(), "'")));
}

}  // namespace thermocline::http
