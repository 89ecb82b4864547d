#include "engine/load/loaded_model.h"

#include <algorithm>
#include <cstdlib>

#include "engine/base/index.h"
#include "engine/ffn/cpu_experts.h"
#include "engine/ffn/cpu_partition.h"
#include "engine/predictor/subset.h"

namespace thermocline::load {

KvType KvTypeOf(const ModelOptions& options, const model::ModelConfig& config) {
  return config.architecture->encoder ? KvType::kF32 : options.kv_type;
}

int PrefillChunk(const model::ModelConfig& config) {
  constexpr int kLeast = 64, kMost = 256, kTokensOfAnExpert = 16;
  const model::ExpertConfig& e = config.experts;
  if (config.architecture->encoder) return kMost;
  if (!e.any()) return kLeast;
  const int wanted = kTokensOfAnExpert * e.num_experts / e.num_experts_per_tok;
  return std::clamp((wanted + kLeast - 1) / kLeast * kLeast, kLeast, kMost);
}

Result<const kernels::OpTable*> ChooseOps(const std::string& isa) {
  const char* from_environment = std::getenv("THERMOCLINE_CPU_ISA");
  std::string wanted = isa;
  if (wanted.empty() && from_environment != nullptr) wanted = from_environment;
  const kernels::OpTable* ops = kernels::CpuOps(wanted.empty() ? nullptr : wanted.c_str());
  if (ops == nullptr) {
    std::string names;
    for (int i = 0; i < kernels::CpuTables().count; ++i)
      names += StrCat(i == 0 ? "" : ", ", kernels::CpuTables().tables[i]->name);
    return base::InvalidArgument("cpu_isa '", wanted, "' cannot be used; this processor can use ",
                                 names);
  }
  return ops;
}

bool LoadedModel::audits() const {
  return predictors != nullptr && !predictors->layers.empty() &&
         !predictors->layers.front().down_norms.empty();
}

void LoadedModel::DropShadow() {
  bool others = false;
  for (predictor::LayerPredictors& layer : predictors->layers) {
    if (audit_shadow == FfnMode::kSign) layer.sign.reset();
    if (audit_shadow == FfnMode::kLowRank) layer.low_rank.reset();
    others |= layer.sign.has_value() || layer.low_rank.has_value();
  }
  if (!others) {
    for (predictor::LayerPredictors& layer : predictors->layers) layer.down_norms = {};
    predictors->memory.clear();
    predictors->bytes = 0;
  }
  audit_shadow = FfnMode::kDense;
  shadow_alone = false;
}

FlashCounters LoadedModel::flash_counters() const {
  if (flash != nullptr) return flash->counters();
  return stream != nullptr ? stream->counters() : FlashCounters{};
}

Result<std::vector<FfnMode>> LoadedModel::LayerModesFor(const std::string& text) const {
  const bool zeros = config.HasZeros();
  ASSIGN_OR_RETURN(FfnModes modes, ParseFfnModes(text, config.num_hidden_layers,
                                                 zeros ? FfnMode::kExact : FfnMode::kDense));
  if (modes.automatic) return ffn_modes;
  for (int l = 0; l < base::IntSize(modes.layers); ++l) {
    if (shadow_alone && modes.layers[l] == audit_shadow) {
      return base::FailedPrecondition(
          "mode '", FfnModeName(audit_shadow),
          "': its predictor is loaded for audits alone (engine.audit_shadow); name the mode among "
          "the further ones (--also-modes; the daemon: engine.ffn_also)");
    }
    const bool whole = config.experts.any() ? !weights->layers[l].experts.any()
                                            : config.HasCuts() && !config.HasZeros(l);
    if (whole && modes.layers[l] != FfnMode::kThreshold) modes.layers[l] = FfnMode::kDense;
    const Status can = CanRun(modes.layers[l], config, weights->layers[l], &predictors->layers[l]);
    if (!can.ok()) return can;
  }
  return std::move(modes.layers);
}

std::vector<FfnMode> LoadedModel::OfferedModes() const {
  std::vector<FfnMode> out;
  for (const std::string_view name : kFfnModeNames) {
    if (name == "auto") continue;
    const std::string text(name);
    if (LayerModesFor(text).ok()) out.push_back(*ParseFfnMode(text));
  }
  return out;
}

Result<RequestModes> LoadedModel::ModesFor(const std::string& text, double kl_max,
                                           std::span<const float> adapter_scales) const {
  const bool adapted = std::any_of(adapter_scales.begin(), adapter_scales.end(),
                                   [](float scale) { return scale != 0; });
  if (adapted) {
    if (text != "" && text != "auto" && text != "dense")
      return base::FailedPrecondition("a request with a LoRA adapter is computed in mode 'dense'")
          .WithField("ffn_mode");
    return RequestModes{.layers = std::vector<FfnMode>(ffn_modes.size(), FfnMode::kDense),
                        .adapters = {adapter_scales.begin(), adapter_scales.end()}};
  }
  auto layers = LayerModesFor(text);
  if (!layers.ok()) return layers.status().WithField("ffn_mode");
  RequestModes modes{.layers = *std::move(layers)};
  if (kl_max < 0) return modes;
  if (std::find(modes.layers.begin(), modes.layers.end(), FfnMode::kInputs) == modes.layers.end())
    return base::InvalidArgument(
               "kl_max bounds what mode 'inputs' leaves out, and this request is "
               "computed in another mode: ask for ffn_mode 'inputs'")
        .WithField("kl_max");
  const auto point = predictor::PointWithin(predictors->input_points, kl_max);
  if (!point.ok()) return point.status().WithField("kl_max");
  modes.input_point = *point;
  return modes;
}

void LoadedModel::SetModes(exec::Transformer& transformer, const RequestModes& modes) const {
  for (int l = 0; l < base::IntSize(modes.layers); ++l) {
    ffn::FfnPolicy& policy = transformer.ffn().policy(l);
    policy.mode = modes.layers[l];
    policy.shift =
        policy.mode == FfnMode::kThreshold ? predictors->layers[l].threshold.value_or(0.0F) : 0.0F;
    policy.input_point = modes.input_point;
  }
  transformer.SetAdapterScales(modes.adapters);
}

HotStats LoadedModel::hot_stats(const exec::Transformer& transformer) const {
  HotStats stats = hot;
  UpdateHotStats(transformer, stats);
  return stats;
}

void LoadedModel::UpdateHotStats(const exec::Transformer& transformer, HotStats& stats) const {
  const ffn::HybridCounters c = transformer.hybrid_counters();
  stats.layers = c.cold.steps;
  stats.active_hot = c.hot.active;
  stats.active_cold = c.cold.active;
  stats.hot_s = c.hot.busy_s;
  stats.cold_s = c.cold.busy_s;
  stats.wait_s = c.wait_s;
  stats.total_s = c.total_s;
}

void LoadedModel::SetRows() {
  for (model::LayerWeights& w : weights->layers) {
    for (model::NeuronMatrix* matrix : {&w.gate, &w.up}) {
      if (matrix->linear.weight.rows > 0) model::SetLayout(*matrix, model::Layout::kRows, *pool);
    }
  }
}

Status LoadedModel::SplitNeurons(ffn::NeuronIds hot_ids, int threads) {
  if (config.architecture->sub_norms)
    return base::FailedPrecondition("a network of the family '", config.architecture->name,
                                    "' has a norm over all of its neurons, which one partition ",
                                    "computes alone: leave out the hot memory");
  SetRows();
  ASSIGN_OR_RETURN(split, ffn::NeuronSplit::Move({.intermediate_size = config.intermediate_size,
                                                  .weights = *weights,
                                                  .flash = flash.get(),
                                                  .deciding_held = memory.deciding_held,
                                                  .hot = std::move(hot_ids)}));
  if (predictors != nullptr) {
    ASSIGN_OR_RETURN(hot_predictors, predictor::SubsetOf(*predictors, split->hot()));
    RETURN_IF_ERROR(KeepColdPredictors());
  }
  hot_threads = threads;
  return OkStatus();
}

Status LoadedModel::KeepColdPredictors() {
  ASSIGN_OR_RETURN(auto cold, predictor::SubsetOf(*predictors, split->cold()));
  for (std::size_t l = 0; l < cold->layers.size(); ++l)
    cold->layers[l].down_norms = std::move(predictors->layers[l].down_norms);
  predictors = std::move(cold);
  return OkStatus();
}

std::unique_ptr<exec::Transformer> LoadedModel::MakeTransformer(int tokens_max, int context_length,
                                                                int logits_max,
                                                                base::WorkerPool* workers) const {
  std::unique_ptr<ffn::FfnPartition> partition;
  if (split != nullptr && device == nullptr) {
    partition = std::make_unique<ffn::CpuPartition>(
        ffn::CpuPartition::Params{.config = config,
                                  .weights = split->hot_weights(),
                                  .predictors = hot_predictors.get(),
                                  .members = split->hot(),
                                  .ops = *ops,
                                  .threads = hot_threads,
                                  .tokens_max = tokens_max,
                                  .prefetch_bytes = prefetch_bytes,
                                  .ablation = ablation});
  }
  std::unique_ptr<ffn::ExpertPartition> experts;
  if (hot_experts != nullptr && device_experts == nullptr) {
    experts = std::make_unique<ffn::CpuExperts>(
        ffn::CpuExperts::Params{.config = config,
                                .weights = *weights,
                                .hot = *hot_experts,
                                .ops = *ops,
                                .threads = hot_threads,
                                .tokens_max = tokens_max,
                                .prefetch_bytes = prefetch_bytes});
  }
  if (device_experts != nullptr) CHECK_LE(tokens_max, device_experts->tokens_max());
  if (device_forward != nullptr) {  // the device's memory was sized for this many
    CHECK_LE(tokens_max, device_forward->tokens_max());
    CHECK_LE(context_length, device_forward->context_length());
    CHECK_LE(logits_max, device_forward->logits_max());
  }
  auto transformer = std::make_unique<exec::Transformer>(
      exec::Transformer::Params{.config = config,
                                .weights = *weights,
                                .predictors = predictors.get(),
                                .input_major = input_major.get(),
                                .ops = *ops,
                                .pool = workers != nullptr ? *workers : *pool,
                                .tokens_max = tokens_max,
                                .logits_max = logits_max,
                                .context_length = context_length,
                                .prefetch_bytes = prefetch_bytes,
                                .flash = flash.get(),
                                .deciding_held = memory.deciding_held,
                                .read_ahead = memory.read_ahead,
                                .stream = stream.get(),
                                .members = split != nullptr ? &split->cold() : nullptr,
                                .hot = std::move(partition),
                                .expert_networks = expert_networks.get(),
                                .hot_experts = std::move(experts),
                                .device_experts = device_experts.get(),
                                .updates = adapters != nullptr ? &adapters->updates : nullptr,
                                .device = device_forward.get(),
                                .ablation = ablation});
  // The loaded scales can be computed.
  const std::vector<float> scales =
      adapters != nullptr ? adapters->defaults() : std::vector<float>();
  SetModes(*transformer, *ModesFor("", -1, scales));
  return transformer;
}

}  // namespace thermocline::load
