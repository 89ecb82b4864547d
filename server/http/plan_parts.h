// Steps shared by all routes that generate, in every protocol.
#pragma once

#include "server/core/service.h"
#include "server/core/submission.h"
#include "server/http/generation_plan.h"
#include "server/protocol/common_request.h"
#include "server/protocol/embedding_request.h"

namespace thermocline::http {

protocol::RequestDefaults DefaultsOf(const server::Service& service);

// InvalidArgument: more dimensions than the model's embeddings have.
Status CheckDimensions(const server::Service& service, int dimensions);

// Admits and encodes a request. Errors as Submission::Admit and Encode.
Result<server::Submission> SubmitEncoded(server::Service& service, const ResponseHead& head,
                                         server::GenerationRequest generation);

// Returns the plan, or the error response.
Action PlanOrRefusal(server::Service& service, const ResponseHead& head,
                     Result<GenerationPlan> plan);

// Plans embeddings of texts. Errors as ParseEmbeddingRequest, CheckDimensions and SubmitEncoded.
Action PlanEmbeddings(server::Service& service, const HttpRequest& request,
                      const ResponseHead& head, protocol::EmbeddingDialect dialect);

// True if the caller may decide how long models stay loaded: an operator, or anybody without keys.
bool MayRule(const server::Service& service, const ResponseHead& head);

}  // namespace thermocline::http
