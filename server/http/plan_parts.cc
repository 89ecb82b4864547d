#include "server/http/plan_parts.h"

namespace thermocline::http {

using server::Service;
using server::Submission;

protocol::RequestDefaults DefaultsOf(const Service& service) {
  return {.sampling = WithDefaults({}, service.sampling_defaults()),
          .max_tokens = service.config().max_tokens,
          .strict_fields = service.live()->config.strict_fields};
}

Status CheckDimensions(const Service& service, int dimensions) {
  if (service.engine() == nullptr) return OkStatus();
  const int most = service.engine()->Stats().hidden_size;
  if (dimensions <= most) return OkStatus();
  return base::InvalidArgument("'dimensions' is ", dimensions, "; this model's vectors have ", most)
      .WithField("dimensions");
}

Result<Submission> SubmitEncoded(Service& service, const ResponseHead& head, server::Asked asked) {
  ASSIGN_OR_RETURN(Submission submission, Submission::Admit(service,
                                                            {.id = head.request_id,
                                                             .tenant = head.tenant,
                                                             .priority_max = head.priority_max,
                                                             .arrived = head.arrived},
                                                            std::move(asked)));
  RETURN_IF_ERROR(submission.Encode());
  return submission;
}

}  // namespace thermocline::http
