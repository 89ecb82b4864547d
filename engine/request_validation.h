// Checks that a request can be run as it stands, before it takes a place in the queue.
#pragma once

#include "engine/api/request.h"
#include "engine/base/status.h"

namespace thermocline {

// The bounds that the loaded model sets.
struct RequestBounds {
  int context_length;  // tokens
  int vocab_size;
};

// InvalidArgument: a field out of range. OutOfRange, for kContextLength: the prompt does not fit
// the context (numbers n_prompt_tokens and n_ctx). Both name the field as Request does; "spec.mode"
// and "draft_tokens" are those of speculation.
Status ValidateRequest(const Request& request, const RequestBounds& bounds);

// `loaded`: what the model was loaded with. InvalidArgument: a field out of range.
// FailedPrecondition: a mode that was not loaded, or that drafts ahead where `not_ahead` says why
// the source cannot.
Status ValidateSpeculation(const Request& request, SpecMode loaded, const std::string& not_ahead);

}  // namespace thermocline
