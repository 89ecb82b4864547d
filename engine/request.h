// One generation, as the engine sees it: tokens in, limits, sampling.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "engine/sampling_params.h"
#include "engine/speculation.h"

namespace thermocline {

struct Request {
  std::vector<int> prompt;  // token ids, at least one
  SamplingParams sampling;
  int max_tokens = 0;             // 0 = to the end of the context
  std::vector<std::string> stop;  // generation ends before the first of these in the text
  std::string ffn_mode = {};      // modes of the feed-forward networks (ffn_mode.h); "" = as loaded
  std::string spec_mode = {};     // SpecModeName; "" = as loaded
  int spec_tokens = -1;           // SpecOptions::tokens_max of this request; -1 = as loaded
  bool ignore_eos = false;        // go on after the model's stop tokens (benchmarks)
  // The request ends with DeadlineExceeded when this has passed, also while it waits for flash.
  std::optional<std::chrono::steady_clock::time_point> deadline = {};
};

enum class FinishReason { kNone, kStop, kLength, kCancelled, kError };

struct Usage {
  int prompt_tokens = 0;
  int cached_tokens = 0;  // of them, found in the prefix cache
  int completion_tokens = 0;
  double queue_s = 0;  // from Submit to the first prefill step
  double prefill_s = 0;
  double decode_s = 0;  // of the tokens after the first
  SpecUsage spec = {};
};

}  // namespace thermocline
