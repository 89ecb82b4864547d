// What a client may ask of sampling. Values are checked where they enter (ValidateSampling).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/base/status.h"

namespace thermocline {

// Order of the steps: logit bias, penalties, temperature, top-k, top-p, min-p, draw.
struct SamplingParams {
  double temperature = 1.0;  // 0 = greedy: the most probable token, the lowest id among equals
  int top_k = 0;             // keep the k most probable; 0 = all
  double top_p = 1.0;        // keep the smallest set with at least this probability
  double min_p = 0.0;        // keep tokens with at least min_p times the highest probability
  double repetition_penalty =
      1.0;  // divides positive and multiplies negative logits of seen tokens (prompt too)
  double presence_penalty = 0.0;   // subtracted once from each generated token's logit
  double frequency_penalty = 0.0;  // subtracted for each time it was generated
  std::uint64_t seed = 0;          // position and seed alone determine each draw
  std::vector<std::pair<int, float>> logit_bias;  // token id, added to its logit
};

// InvalidArgument naming the field, its value and its range.
Status ValidateSampling(const SamplingParams& params);

}  // namespace thermocline
