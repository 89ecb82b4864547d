// Answers that are computed at once from the fields of a body.
#pragma once

#include <functional>

#include "server/core/service.h"
#include "server/http/generation_plan.h"
#include "server/protocol/fields.h"

namespace thermocline::http {

// The treatment of fields that `answer` does not read.
enum class OtherFields {
  kChecked,    // unknown ones are rejected or reported
  kOfRequest,  // the body may be a full request, most of which is ignored
};

// Returns the result of `answer` for the body's fields, or a rejection if they are malformed or the
// service is not ready. Checks the field "model" first.
Action AnswerFields(server::Service& service, const HttpRequest& request, const ResponseHead& head,
                    OtherFields others,
                    const std::function<Result<Json>(protocol::Fields&)>& answer);

}  // namespace thermocline::http
