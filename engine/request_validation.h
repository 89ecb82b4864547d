// Checks that a request is valid, before it takes a place in the queue.
#pragma once

#include "engine/api/request.h"
#include "engine/base/status.h"

namespace thermocline {

// The limits given by the loaded model.
struct RequestBounds {
  int context_length;  // tokens
  int vocab_size;
};

// InvalidArgument: a field out of range. OutOfRange, for kContextLength: the prompt does not fit
// the context (numbers n_prompt_tokens and n_ctx). Both name the field as Request does; "spec.mode"
// and "draft_tokens" are those of speculation.
Status ValidateRequest(const Request& request, const RequestBounds& bounds);

// `loaded`: the mode the model was loaded with. InvalidArgument: a field out of range.
// FailedPrecondition: a mode that was not loaded, or one that drafts ahead although `not_ahead`
// states why the source cannot.
Status ValidateSpeculation(const Request& request, SpecMode loaded, const std::string& not_ahead);

}  // namespace thermocline
