// Fills response messages from the engine's data.
#pragma once

#include <vector>

#include "engine/api/token_channel.h"
#include "engine/text/tokenizer.h"
#include "server/core/service.h"
#include "thermocline/v1/inference.pb.h"

namespace thermocline::rpc {

// The details per token that a client requested.
struct DeltaOptions {
  bool token_ids = false;
  int logprobs = -1;  // Request::logprobs
};

void FillDelta(const text::Tokenizer& tokenizer, const DeltaOptions& options,
               const TokenChannel::Update& update, v1::Delta& out);
// Requires: the update is the last one, with reason kStop or kLength.
void FillFinished(const TokenChannel::Update& update, bool speculated, v1::Finished& out);

// Requires: the model is loaded.
void FillModel(const server::Service& service, v1::Model& out);
void FillStats(const server::Service& service, v1::Stats& out);

}  // namespace thermocline::rpc
