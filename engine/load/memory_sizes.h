// The host memory of each part of a model, computed before anything is allocated: the terms of a
// plan of memory (memory_plan.h).
#pragma once

#include <vector>

#include "engine/load/memory_plan.h"

namespace thermocline::load {

// Bytes by purpose.
struct ModelSizes {
  std::size_t shared = 0, attention = 0, deciding = 0, rests = 0;
  std::vector<std::size_t> images;  // [L] of whole layers
  std::size_t predictors = 0, kv = 0, process = 0;

  std::size_t networks() const { return deciding + rests; }
};

// The sizes of the model, its predictors, its KV cache and the process at present. Errors of the
// model's file.
Result<ModelSizes> SizesOf(const MemoryNeeds& needs);

// Tokens of a sequence: as configured, or the default.
int ContextLength(const MemoryNeeds& needs);
// Buffers of a step, including the samplers of sequences that share it and both ends of a hot tier.
std::size_t BufferBytes(const MemoryNeeds& needs, MemoryPlan::Tier tier, bool deciding_held);
// The bytes of the second transformer that drafts ahead.
std::size_t AheadBytes(const MemoryNeeds& needs);
std::size_t KvBytes(const MemoryNeeds& needs);

}  // namespace thermocline::load
