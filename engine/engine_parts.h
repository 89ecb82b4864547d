// Loads the engine's parts. The draft model is loaded first, because the target gets the remaining
// memory.
#pragma once

#include <memory>

#include "engine/engine.h"
#include "engine/kv_memory.h"
#include "engine/load/loaded_model.h"
#include "engine/prefix/flash_prefixes.h"
#include "engine/spec/set_up.h"
#include "engine/store/trace.h"

namespace thermocline {

struct EngineParts {
  std::unique_ptr<load::LoadedModel> model;
  spec::LoadedDraft draft;
  KvMemory kv;
  std::unique_ptr<prefix::FlashPrefixes> flash_prefixes;  // borrows the pool; null: there are none
  std::unique_ptr<store::TraceWriter> trace;              // null: none is recorded
};

// Errors as Engine::Load.
Result<EngineParts> LoadParts(const EngineConfig& config);

// Returns the plan's limits for grammars.
GrammarLimits GrammarLimitsOf(const EngineConfig& config, const load::LoadedModel& model);

// Tokens of one step whose logits are needed.
int StepLogitsMax(const EngineConfig& config);

}  // namespace thermocline
