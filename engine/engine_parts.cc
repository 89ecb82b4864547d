#include "engine/engine_parts.h"

#include <algorithm>
#include <utility>

namespace thermocline {
namespace {

Status ValidateConfig(const EngineConfig& config) {
  const std::pair<const char*, int> positive[] = {{"queue_capacity", config.queue_capacity},
                                                  {"sequences_max", config.sequences_max},
                                                  {"prefill_chunk", config.prefill_chunk}};
  for (const auto& [field, value] : positive) {
    if (value < 1) return base::InvalidArgument(field, " is ", value, "; it must be at least 1");
  }
  return OkStatus();
}

load::MemoryOptions MemoryOptionsOf(const EngineConfig& config, kernels::KvType kv_type) {
  const auto kv_bytes = [&config, kv_type](const model::ModelConfig& model) {
    return KvBytes(config, model, kv_type);
  };
  return {.budget_bytes = config.memory_budget_bytes,
          .ffn_share = config.ffn_memory_share,
          .bundle = config.bundle,
          .context_length = config.context_length,
          .tokens_max = StepTokensMax(config),
          .logits_max = StepLogitsMax(config),
          .kv_bytes = kv_bytes,
          .read_ahead = config.read_ahead};
}

load::LoadOptions LoadOptionsOf(const EngineConfig& config, kernels::KvType kv_type) {
  load::LoadOptions load;
  load.model = config.model;
  load.threads = config.threads;
  load.cpu_isa = config.cpu_isa;
  load.activation = config.activation;
  load.kv_type = kv_type;
  load.verify = config.verify;
  load.quantize_head = config.quantize_head;
  load.ffn = config.ffn;
  load.memory = MemoryOptionsOf(config, kv_type);
  load.hot = config.hot;
  load.device_ops = config.device_ops;
  load.fingerprint = !config.record_trace.empty();
  load.on_progress = config.on_progress;
  return load;
}

// Takes what `draft` takes from the budget of `target`.
void LeaveRoom(const load::LoadedModel& draft, const SpecOptions& options,
               load::MemoryOptions& target) {
  const auto acceptance = options.acceptance == "rejection" ? spec::Acceptance::kRejection
                                                            : spec::Acceptance::kSameText;
  const std::size_t taken =
      draft.memory.total() + spec::DistributionBytes(acceptance, draft.config.vocab_size);
  target.budget_bytes =
      std::max<std::int64_t>(1, target.budget_bytes - static_cast<std::int64_t>(taken));
}

Result<std::unique_ptr<load::LoadedModel>> LoadTarget(const EngineConfig& config,
                                                      const load::LoadOptions& load) {
  auto loaded = load::LoadModel(load);
  if (!loaded.ok() && config.spec.source == "self" && config.spec.mode != "off")
    return loaded.status().Annotate("with spec.source self, which needs a predictor");
  if (!loaded.ok()) return loaded.status();
  std::unique_ptr<load::LoadedModel> model = *std::move(loaded);
  if (model->tokenizer == nullptr)
    return base::FailedPrecondition(model->path, ": the model file holds no tokenizer");
  if (!config.record_trace.empty() && (model->split != nullptr || model->device != nullptr)) {
    return base::InvalidArgument(
        "a trace can be recorded where one side computes all neurons: leave out the hot tier "
        "(device cpu, no memory for it), or the trace");
  }
  return model;
}

}  // namespace

Result<EngineParts> LoadParts(const EngineConfig& config) {
  RETURN_IF_ERROR(ValidateConfig(config));
  ASSIGN_OR_RETURN(const kernels::KvType kv_type, load::ParseKvType(config.kv_type));
  RETURN_IF_ERROR(spec::Validate(config.spec));
  load::LoadOptions load = LoadOptionsOf(config, kv_type);
  EngineParts parts;
  // The draft first: what it takes, the target may not.
  ASSIGN_OR_RETURN(parts.draft, spec::LoadDraft(config.spec, load));
  if (parts.draft.model != nullptr && load.memory.budget_bytes > 0)
    LeaveRoom(*parts.draft.model, config.spec, load.memory);
  spec::AskOfTarget(config.spec, load);
  ASSIGN_OR_RETURN(parts.model, LoadTarget(config, load));
  ASSIGN_OR_RETURN(parts.kv, TakeKvMemory(config, *parts.model));
  if (!config.record_trace.empty()) {
    ASSIGN_OR_RETURN(parts.trace,
                     store::TraceWriter::Create(config.record_trace, parts.model->trace_shape()));
  }
  return parts;
}

int StepTokensMax(const EngineConfig& config) {
  return std::max(config.prefill_chunk, StepLogitsMax(config));
}

// Those of a draft and of the token before it.
int StepLogitsMax(const EngineConfig& config) {
  return config.spec.mode == "off" ? 1 : kDraftTokensMax + 1;
}

}  // namespace thermocline
