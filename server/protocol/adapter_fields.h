// The field "lora": [{"id": 0, "scale": 0.5}], as in llama-server.
#pragma once

#include "server/core/generation_request.h"
#include "server/protocol/fields.h"

namespace thermocline::protocol {

void ReadAdapters(Fields& fields, server::GenerationRequest& generation);

}  // namespace thermocline::protocol
