// The numbers of tokens and of blocks of an engine's KV cache, and its memory.
#pragma once

#include <cstddef>
#include <memory>

#include "engine/engine.h"
#include "engine/load/loaded_model.h"
#include "engine/nn/kv_pool.h"

namespace thermocline {

struct KvMemory {
  std::unique_ptr<nn::KvPool> pool;
  int context_length;         // tokens of one sequence
  nn::KvCount prefix_blocks;  // blocks that finished requests may keep
};

// Bytes that TakeKvMemory will reserve for sequences of `context` tokens. `whole`: as
// LoadedModel::kv_whole.
std::size_t KvBytes(const EngineConfig& config, const model::ModelConfig& model, int context,
                    bool whole);

// Takes blocks for one whole context, a copy of a shared block, and the blocks that finished
// requests may keep. Layers with a window take, if that is less, the windows of all sequences that
// may be started and of some finished ones. InvalidArgument: a context beyond the model's limit, or
// too large a prefix cache. Errors as nn::KvPool::Create.
Result<KvMemory> TakeKvMemory(const EngineConfig& config, const load::LoadedModel& model);

}  // namespace thermocline
