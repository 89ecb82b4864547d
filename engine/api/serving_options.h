// Options for the requests that share a model: queue, turns, clients that read slowly, kept
// prefixes.
#pragma once

#include <cstdint>

#include "engine/api/grammar_spec.h"

namespace thermocline {

struct ServingOptions {
  int queue_capacity = 64;       // requests waiting beside the running one
  int queue_prefill_tokens = 0;  // prompt tokens that may wait; 0 = any number
  // Tokens of one prefill step: cancellation is looked at in between. 0: as load::PrefillChunk.
  int prefill_chunk = 0;
  // Requests that are begun take turns of so many tokens while others wait; 0 = each runs to its
  // end. A prompt token counts as an eighth.
  int quantum_tokens = 32;
  // Requests that are begun share steps: the next token of up to so many of them, and parts of
  // prompts. 1 = they take turns.
  int step_tokens = 16;
  double itl_target_ms =
      0;  // between two tokens of an answer, while prompts are read beside; 0 = auto
  int sequences_max = 16;                // requests that are begun at the same time
  int reader_buffer_tokens = 1024;       // that a client has not taken, before its request pauses
  double reader_timeout_s = 30;          // of a pause, before the request is given up; 0 = any time
  std::int64_t prefix_cache_bytes = -1;  // kept keys and values; -1 = as much as one context
  GrammarLimits grammar = {};
};

// The daemon's clients are strangers to each other: what may wait has a bound.
inline ServingOptions DaemonServingDefaults() { return {.queue_prefill_tokens = 65'536}; }

}  // namespace thermocline
