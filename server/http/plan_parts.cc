#include "server/http/plan_parts.h"

namespace thermocline::http {

using server::Service;
using server::Submission;

openai::RequestDefaults DefaultsOf(const Service& service) {
  return {.sampling = WithDefaults({}, service.sampling_defaults()),
          .max_tokens = service.config().max_tokens};
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
