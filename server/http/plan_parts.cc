#include "server/http/plan_parts.h"

#include "server/http/refusal.h"
#include "server/protocol/embedding_answer.h"

namespace thermocline::http {

using server::Service;
using server::Submission;

namespace {

Result<GenerationPlan> PlanOfEmbeddings(Service& service, const std::string& body,
                                        const ResponseHead& head,
                                        protocol::EmbeddingDialect dialect) {
  ASSIGN_OR_RETURN(
      protocol::EmbeddingRequest parsed,
      protocol::ParseEmbeddingRequest(
          body, service.pooling(), service.reloadable()->config.strict_fields, nullptr, dialect));
  RETURN_IF_ERROR(CheckDimensions(service, parsed.dimensions));
  auto format = std::make_unique<protocol::EmbeddingAnswer>(service.model_name(), parsed);
  ASSIGN_OR_RETURN(Submission submission,
                   SubmitEncoded(service, head, std::move(parsed.generation)));
  return GenerationPlan{.submission = std::move(submission), .format = std::move(format)};
}

}  // namespace

protocol::RequestDefaults DefaultsOf(const Service& service) {
  return {.sampling = WithDefaults({}, service.sampling_defaults()),
          .max_tokens = service.config().max_tokens,
          .strict_fields = service.reloadable()->config.strict_fields};
}

Status CheckDimensions(const Service& service, int dimensions) {
  if (service.engine() == nullptr) return OkStatus();
  const int most = service.engine()->Stats().hidden_size;
  if (dimensions <= most) return OkStatus();
  return base::InvalidArgument("'dimensions' is ", dimensions, "; this model's vectors have ", most)
      .WithField("dimensions");
}

Result<Submission> SubmitEncoded(Service& service, const ResponseHead& head,
                                 server::GenerationRequest generation) {
  ASSIGN_OR_RETURN(Submission submission, Submission::Admit(service,
                                                            {.id = head.request_id,
                                                             .tenant = head.tenant,
                                                             .priority_max = head.priority_max,
                                                             .arrived = head.arrived,
                                                             .models = head.models},
                                                            std::move(generation)));
  RETURN_IF_ERROR(submission.Encode());
  return submission;
}

Action PlanOrRefusal(Service& service, const ResponseHead& head, Result<GenerationPlan> plan) {
  if (!plan.ok()) return RefusalResponse(service, head, plan.status());
  return *std::move(plan);
}

Action PlanEmbeddings(Service& service, const HttpRequest& request, const ResponseHead& head,
                      protocol::EmbeddingDialect dialect) {
  return PlanOrRefusal(service, head, PlanOfEmbeddings(service, request.body(), head, dialect));
}

bool MayRule(const server::Service& service, const ResponseHead& head) {
  return head.admin || !service.reloadable()->needs_keys();
}

}  // namespace thermocline::http
