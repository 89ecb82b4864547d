// The fields that /v1/chat/completions and /v1/completions have in common.
#pragma once

#include <string>

#include "server/core/generation_request.h"
#include "server/core/request_limits.h"
#include "server/protocol/fields.h"

namespace thermocline::protocol {

using server::kChoicesPerPromptMax;

// Defaults for fields that a request omits.
struct RequestDefaults {
  SamplingParams sampling;
  int max_tokens = 0;
  bool strict_fields = false;  // server.strict_fields
};

struct CommonRequest {
  server::GenerationRequest generation;
  bool stream = false;
  bool include_usage = false;  // a usage chunk at the end of a stream
};

// Rejects or reports fields that were not read, and passes the ignored ones on.
void FinishFields(Fields& fields, bool strict, server::GenerationRequest& generation);

// Reads the common fields; `max_tokens_min` is 1, or 0 for routes that may generate no token.
// Fields that are malformed or out of range fail `fields`. `x_thermocline` holds our own fields.
void ReadCommon(Fields& fields, const RequestDefaults& defaults, int max_tokens_min,
                CommonRequest& out);

}  // namespace thermocline::protocol
