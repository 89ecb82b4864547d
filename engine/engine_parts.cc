#include "engine/engine_parts.h"

#include <algorithm>
#include <climits>
#include <utility>

#include "engine/base/log.h"
#include "engine/prefix_tier.h"

namespace thermocline {
namespace {

Status ValidateServing(const ServingOptions& serving) {
  const std::pair<const char*, int> positive[] = {{"queue_capacity", serving.queue_capacity},
                                                  {"sequences_max", serving.sequences_max}};
  for (const auto& [field, value] : positive) {
    if (value < 1) return base::InvalidArgument(field, " is ", value, "; it must be at least 1");
  }
  return OkStatus();
}

load::LoadOptions LoadOptionsOf(const EngineConfig& config) {
  const auto kv_bytes = [&config](const model::ModelConfig& model, int context, bool whole) {
    return KvBytes(config, model, context, whole);
  };
  return {.model = config.model,
          .sizes = {.tokens_max = config.serving.prefill_chunk,
                    .logits_max = StepLogitsMax(config),
                    .sharing = config.serving.step_tokens > 1 ? config.serving.sequences_max : 0,
                    .context_default_max = INT_MAX,
                    .kv_bytes = kv_bytes},
          .device_ops = config.device_ops,
          .fingerprint = !config.serving.prefix_path.empty(),
          .on_progress = config.on_progress,
          .cancelled = config.cancelled};
}

load::GrammarSizes GrammarSizesOf(const GrammarLimits& limits) {
  constexpr std::size_t kLeast = 4 << 20;  // enough for schemas of at least ten fields
  // Bytes of grammar::VocabularyIndex per token: 133 to 153 for vocabularies of 32,000 to 262,144
  // tokens.
  constexpr std::size_t kIndexBytesOfToken = 160;
  const std::size_t most = limits.memory_bytes;
  return {.least = std::min(kLeast, most), .most = most, .of_token = kIndexBytesOfToken};
}

// Subtracts the memory of `draft` from the budget of `target`.
void LeaveRoom(const load::LoadedModel& draft, const SpecOptions& options, MemoryOptions& target) {
  const std::size_t taken =
      draft.memory.total() + spec::DistributionBytes(options.acceptance, draft.config.vocab_size);
  target.budget_bytes =
      std::max<std::int64_t>(1, target.budget_bytes - static_cast<std::int64_t>(taken));
}

Result<std::unique_ptr<load::LoadedModel>> LoadTarget(const EngineConfig& config,
                                                      const load::LoadOptions& load) {
  auto loaded = load::LoadModel(load);
  const SpecOptions& spec = config.model.spec;
  if (!loaded.ok() && spec.source == SpecSource::kSelf && spec.mode != SpecMode::kOff)
    return loaded.status().Annotate("with spec.source self, which needs a predictor");
  if (!loaded.ok()) return loaded.status();
  std::unique_ptr<load::LoadedModel> model = *std::move(loaded);
  if (model->tokenizer == nullptr)
    return base::FailedPrecondition(model->path, ": the model file holds no tokenizer");
  if (!config.model.record_trace.empty() && (model->split != nullptr || model->device != nullptr)) {
    return base::InvalidArgument(
        "a trace can be recorded where one side computes all neurons: leave out the hot tier "
        "(device cpu, no memory for it), or the trace");
  }
  return model;
}

}  // namespace

Result<EngineParts> LoadParts(const EngineConfig& config) {
  const SpecOptions& spec = config.model.spec;
  RETURN_IF_ERROR(ValidateServing(config.serving));
  RETURN_IF_ERROR(spec::Validate(spec));
  load::LoadOptions load = LoadOptionsOf(config);
  EngineParts parts;
  // The draft is loaded first, so that the target does not use its memory.
  ASSIGN_OR_RETURN(parts.draft, spec::LoadDraft(spec, load));
  if (parts.draft.model != nullptr && load.model.memory.budget_bytes > 0)
    LeaveRoom(*parts.draft.model, spec, load.model.memory);
  spec::AddDraftNeeds(spec, load);
  load.sizes.grammars = GrammarSizesOf(config.serving.grammar);
  ASSIGN_OR_RETURN(parts.model, LoadTarget(config, load));
  if (const std::size_t grammars = parts.model->memory.grammars;
      grammars < static_cast<std::size_t>(config.serving.grammar.memory_bytes))
    base::LogInfo("grammars may take ", base::HumanBytes(grammars),
                  ": the memory budget leaves no more (grammar.memory_mib asks for ",
                  config.serving.grammar.memory_bytes >> 20, " MiB)");
  ASSIGN_OR_RETURN(parts.kv, TakeKvMemory(config, *parts.model));
  ASSIGN_OR_RETURN(parts.flash_prefixes, OpenPrefixTier(config, *parts.model, *parts.kv.pool));
  if (const std::string& path = config.model.record_trace; !path.empty()) {
    if (!parts.model->predictors->input_points.empty())
      return base::FailedPrecondition(
          "a trace names the neurons that tokens need, and mode 'inputs' chooses none: record it "
          "in "
          "another mode");
    ASSIGN_OR_RETURN(parts.trace, store::TraceWriter::Create(path, parts.model->trace_shape()));
  }
  return parts;
}

GrammarLimits GrammarLimitsOf(const EngineConfig& config, const load::LoadedModel& model) {
  GrammarLimits limits = config.serving.grammar;
  limits.memory_bytes = model.memory.grammars;
  return limits;
}

// The tokens of a draft, or those that a grammar forces, and the token before them; or those of all
// answers that share a step. Without drafts, steps are not longer than configured.
int StepLogitsMax(const EngineConfig& config) {
  const int most = std::max(kDraftTokensMax + 1, config.serving.step_tokens);
  const bool drafts = config.model.spec.mode != SpecMode::kOff;
  const int chunk = config.serving.prefill_chunk;
  return drafts || chunk == 0 ? most : std::min(most, chunk);
}

}  // namespace thermocline
