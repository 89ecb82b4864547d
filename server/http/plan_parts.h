// The steps that the routes which generate have in common, whatever the protocol.
#pragma once

#include "server/core/service.h"
#include "server/core/submission.h"
#include "server/http/generation_plan.h"
#include "server/protocol/common_request.h"
#include "server/protocol/embedding_request.h"

namespace thermocline::http {

protocol::RequestDefaults DefaultsOf(const server::Service& service);

// InvalidArgument: more dimensions than the model's vectors have.
Status CheckDimensions(const server::Service& service, int dimensions);

// Admitted and encoded. Errors as Submission::Admit and Encode.
Result<server::Submission> SubmitEncoded(server::Service& service, const ResponseHead& head,
                                         server::Asked asked);

// The plan, or why there is none.
Action PlanOrRefusal(server::Service& service, const ResponseHead& head,
                     Result<GenerationPlan> plan);

// A plan for the vectors of texts. Errors as ParseEmbeddingRequest, CheckDimensions and
// SubmitEncoded.
Action PlanEmbeddings(server::Service& service, const HttpRequest& request,
                      const ResponseHead& head, protocol::EmbeddingDialect dialect);

}  // namespace thermocline::http
