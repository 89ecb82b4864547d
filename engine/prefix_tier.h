// Opens the prefix cache's tier on flash for a loaded model.
#pragma once

#include <memory>

#include "engine/engine.h"
#include "engine/load/loaded_model.h"
#include "engine/nn/kv_pool.h"
#include "engine/prefix/flash_prefixes.h"

namespace thermocline {

// Returns null if no folder is configured, or if a GPU holds the KV cache, which is logged. Errors
// as prefix::FlashPrefixes::Open.
Result<std::unique_ptr<prefix::FlashPrefixes>> OpenPrefixTier(const EngineConfig& config,
                                                              const load::LoadedModel& model,
                                                              nn::KvPool& pool);

}  // namespace thermocline
