// Options for the requests that share a model: queue, turns, slow clients, cached prefixes.
#pragma once

#include <cstdint>
#include <string>

#include "engine/api/grammar_spec.h"

namespace thermocline {

struct ServingOptions {
  int queue_capacity = 64;       // requests waiting beside the running one
  int queue_prefill_tokens = 0;  // prompt tokens that may wait; 0 = any number
  // Tokens of one prefill step; cancellation is checked between steps. 0: as load::PrefillChunk.
  int prefill_chunk = 0;
  // Started requests take turns of this many tokens while others wait; 0 = each runs to its end. A
  // prompt token counts as an eighth.
  int quantum_tokens = 8;
  // Started requests share steps: the next token of up to this many requests, and parts of prompts.
  // 1 = they take turns.
  int step_tokens = 16;
  double itl_target_ms =
      0;  // target time between tokens of an answer while prompts are prefilled too; 0 = auto
  int sequences_max = 16;                // requests that may be started at the same time
  int reader_buffer_tokens = 1024;       // tokens not yet read by the client before its request
                                         // pauses
  double reader_timeout_s = 30;          // pause after which the request is cancelled; 0 = no limit
  std::int64_t prefix_cache_bytes = -1;  // cached KV of prefixes; -1 = as much as one context
  // A folder for prefixes that outlive the process, and the bytes of its files; "": there is none.
  std::string prefix_path = {};
  std::int64_t prefix_path_bytes = std::int64_t{10} << 30;
  // A log line for each prompt that differs from a cached one, with twenty tokens of text on both
  // sides of the first difference. The only setting that writes parts of prompts to the log.
  bool log_prefix_differences = false;
  GrammarLimits grammar = {};
};

// The daemon's clients do not know each other, so the waiting prompt tokens are bounded.
inline ServingOptions DaemonServingDefaults() { return {.queue_prefill_tokens = 65'536}; }

}  // namespace thermocline
