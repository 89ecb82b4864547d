// Validates a GenerateRequest and converts it to the engine's request.
#pragma once

#include "engine/base/status.h"
#include "server/core/generation_request.h"
#include "thermocline/v1/inference.pb.h"

namespace thermocline::rpc {

struct GenerateParams {
  server::GenerationRequest generation;
  bool return_tokens = false;  // ids in Delta
};

struct GenerateDefaults {
  SamplingParams sampling;
  int max_tokens = 0;
};

// Pure; the message may be destroyed afterwards. InvalidArgument, with the field.
Result<GenerateParams> ParseGenerate(const v1::GenerateRequest& message,
                                     const GenerateDefaults& defaults);

Result<server::Conversation> ParseChat(const v1::Chat& chat);

}  // namespace thermocline::rpc
