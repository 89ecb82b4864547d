// Log probabilities of tokens under the model's own distribution, before all sampling.
#pragma once

#include <span>
#include <vector>

#include "engine/api/token_channel.h"

namespace thermocline::sampling {

// Appends to `out` log softmax(logits)[token], then those of the `top` most probable tokens,
// descending, the lowest id first among equals. Requires: logits [V]; top <= min(V, kLogprobsMax).
void ScoreToken(std::span<const float> logits, int token, int top,
                std::vector<TokenChannel::Score>& out);

}  // namespace thermocline::sampling
