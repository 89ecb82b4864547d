// Answers that are made at once from the fields of a body.
#pragma once

#include <functional>

#include "server/core/service.h"
#include "server/http/generation_plan.h"
#include "server/protocol/fields.h"

namespace thermocline::http {

// The treatment of fields that `answer` does not look for.
enum class OtherFields {
  kChecked,    // unknown ones are refused or noted
  kOfRequest,  // the body may be that of a whole request, most of which does not matter
};

// Returns what `answer` makes of the body's fields, while requests are served, or a refusal. The
// field "model" is checked here.
Action AnswerFields(server::Service& service, const HttpRequest& request, const ResponseHead& head,
                    OtherFields others,
                    const std::function<Result<Json>(protocol::Fields&)>& answer);

}  // namespace thermocline::http
