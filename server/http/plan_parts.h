// What the routes that generate have in common, whatever the protocol.
#pragma once

#include "server/core/service.h"
#include "server/core/submission.h"
#include "server/http/response.h"
#include "server/protocol/common_request.h"

namespace thermocline::http {

protocol::RequestDefaults DefaultsOf(const server::Service& service);

// InvalidArgument: more dimensions than the model's vectors have.
Status CheckDimensions(const server::Service& service, int dimensions);

// Admitted and encoded. Errors as Submission::Admit and Encode.
Result<server::Submission> SubmitEncoded(server::Service& service, const ResponseHead& head,
                                         server::Asked asked);

}  // namespace thermocline::http
