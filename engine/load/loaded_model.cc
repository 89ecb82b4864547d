#include "engine/load/loaded_model.h"

#include <sched.h>

#include <chrono>
#include <cstdlib>

#include "engine/base/log.h"
#include "engine/ffn/cpu_partition.h"
#include "engine/load/flash_setup.h"
#include "engine/load/hot_setup.h"
#include "engine/load/mode_tuner.h"
#include "engine/model/builtin.h"
#include "engine/model/down_layout.h"
#include "engine/model/fingerprint.h"
#include "engine/predictor/subset.h"

namespace thermocline::load {

int NumProcessors() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return CPU_COUNT(&set);
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

namespace {

void LogModes(const LoadedModel& model) {
  std::string text;
  for (std::size_t first = 0; first < model.ffn_modes.size();) {
    std::size_t last = first;
    while (last + 1 < model.ffn_modes.size() && model.ffn_modes[last + 1] == model.ffn_modes[first])
      ++last;
    text += StrCat(text.empty() ? "" : ", ", FfnModeName(model.ffn_modes[first]), " in layers ",
                   first, " to ", last);
    first = last + 1;
  }
  base::LogInfo("feed-forward: ", text, model.ffn_automatic ? " (measured)" : "");
  if (model::HasTrueZeros(model.config.hidden_act) && !model.weights->has_down_rows()) {
    const auto& layers = model.weights->layers;
    const bool turns = model.memory.tier == MemoryPlan::Tier::kMemory &&
                       std::all_of(layers.begin(), layers.end(), [](const model::LayerWeights& w) {
                         return model::CanTurnDown(w).ok();
                       });
    base::LogInfo(
        "the down projection is not neuron-major, so all of it is read for every token; "
        "`thermocline convert --down rows` makes a file whose down rows can be skipped too",
        turns ? ", and --down-layout rows (the daemon: engine.down_layout) turns it while loading"
              : "");
  }
}

// Down projections as rows, whatever the file has.
Status TurnDownProjections(LoadedModel& model) {
  if (model.memory.tier != MemoryPlan::Tier::kMemory)
    return base::FailedPrecondition(
        "down layout rows: the model does not fit into memory; `thermocline convert --down rows` "
        "makes a file that lies so");
  auto& layers = model.weights->layers;
  int rounded = 0;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    RETURN_IF_ERROR(model::CanTurnDown(layers[l]).Annotate(
        StrCat("down layout rows: the projection of layer ", l)));
    rounded += model::TurnsDownExactly(layers[l]) ? 0 : 1;
  }
  const std::size_t needed = model::TurnDownBytes(layers.front());
  if (model.memory.total() + needed > model.memory.budget)
    return base::ResourceExhausted("down layout rows: turning a projection takes ",
                                   base::HumanBytes(needed),
                                   ", which the memory budget does not leave; `thermocline convert "
                                   "--down rows` makes a file that lies so");
  for (model::LayerWeights& layer : layers) model::TurnDown(layer, *model.pool);
  base::LogInfo("down projections are turned: neuron-major in memory",
                rounded > 0 ? ", quantised weights rounded once more" : "");
  return OkStatus();
}

Status SetUpFfn(const model::ModelFile& file, const LoadOptions& options, FfnPlan plan,
                std::optional<store::BundleIndex> bundle, LoadedModel& out) {
  const DownInMemory down = options.model.ffn.down;
  if (down == DownInMemory::kRows && !out.weights->has_down_rows())
    RETURN_IF_ERROR(TurnDownProjections(out));
  // Before the cache is filled: what they are made from is loaded for the moment.
  ASSIGN_OR_RETURN(out.predictors,
                   LoadPredictors(file, *out.weights, plan, options.model.ffn, *out.pool));
  if (bundle.has_value()) RETURN_IF_ERROR(OpenFlash(file, options, *std::move(bundle), out));
  out.side_car = std::move(plan.side_car);
  out.side_car_path = plan.side_car_path;
  out.ffn_automatic = plan.modes.automatic;
  out.audit_shadow = plan.shadow;
  out.shadow_alone = plan.shadow_alone;
  out.ffn_modes = std::move(plan.modes.layers);
  if (out.ffn_automatic && out.memory.tier != MemoryPlan::Tier::kMemory) {
    // Bytes from flash decide, not those from memory: as few as the recall allows.
    const FfnMode least = plan.candidates.empty() ? FfnMode::kExact : plan.candidates.front();
    out.ffn_modes.assign(out.weights->layers.size(),
                         model::HasTrueZeros(out.config.hidden_act) ? least : FfnMode::kDense);
  } else if (out.ffn_automatic) {
    out.ffn_modes.assign(out.weights->layers.size(), FfnMode::kDense);
    RETURN_IF_ERROR(ChooseModes(out, {.candidates = plan.candidates,
                                      .also = plan.also,
                                      .may_turn_down = down == DownInMemory::kAuto}));
  }
  LogModes(out);
  return OkStatus();
}

// What is left out must have been there: else a measurement would compare a thing with itself.
Status CheckAblation(const LoadedModel& model) {
  const Ablation& ablation = model.ablation;
  const auto any = [&](const auto& is) {
    return std::any_of(model.ffn_modes.begin(), model.ffn_modes.end(), is);
  };
  const bool changes = ablation.predictor_changed() || !ablation.fusion;
  if (changes && model.device != nullptr)
    return base::FailedPrecondition(
        "--no-actual-sparsity, --no-fusion and --random-predictor: a GPU computes as it does; "
        "--device cpu");
  if (ablation.predictor_changed() && !any(ffn::Predicts))
    return base::FailedPrecondition(
        "--no-actual-sparsity, --random-predictor: no layer is in a mode that predicts; give "
        "--ffn-mode sign or lowrank");
  if (!ablation.fusion &&
      (model.flash != nullptr || !any([](FfnMode m) { return m != FfnMode::kDense; })))
    return base::FailedPrecondition(
        "--no-fusion: nothing is fused in mode dense, nor with neurons on flash, where what is "
        "there is computed while the rest is read");
  if (!ablation.bundling && model.flash == nullptr)
    return base::FailedPrecondition("--no-bundling: no neurons come from flash");
  return OkStatus();
}

// A shadow that nobody asked for by name is given up where the model does not fit into memory with
// it.
Result<MemoryPlan> PlanWithShadow(const MemoryNeeds& needs, FfnPlan& plan,
                                  std::optional<store::BundleIndex>& bundle) {
  auto memory = PlanMemory(needs, bundle);
  const bool fits = memory.ok() && memory->tier == MemoryPlan::Tier::kMemory;
  const bool may_drop = plan.shadow_alone && needs.options.ffn.audit_shadow == AuditShadow::kAuto;
  if (fits || !may_drop) return memory;
  base::LogInfo("no predictor is audited in the shadow: the model does not fit into memory");
  DropShadow(plan);
  bundle.reset();
  return PlanMemory(needs, bundle);
}

}  // namespace

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

Result<std::unique_ptr<LoadedModel>> LoadModel(const LoadOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  auto loaded = std::make_unique<LoadedModel>();
  ASSIGN_OR_RETURN(loaded->ops, ChooseOps(options.model.cpu_isa));
  ASSIGN_OR_RETURN(loaded->path, model::ResolveModel(options.model.path));
  ASSIGN_OR_RETURN(loaded->file, model::OpenModelFile(loaded->path));
  model::ModelFile* const file = loaded->file.get();
  loaded->format = file->format;
  file->config.hidden_act = options.model.activation.value_or(file->config.hidden_act);
  loaded->config = file->config;
  loaded->sampling = file->sampling;
  if (!options.model.record_trace.empty()) {
    ASSIGN_OR_RETURN(loaded->hash, model::Fingerprint(*file));
  }
  loaded->kv_type = options.model.kv_type;
  loaded->quantize_head = options.model.quantize_head;
  loaded->ablation = options.model.ablation;
  auto tokenizer = text::Tokenizer::Create(file->vocabulary);
  // A model without a tokenizer still runs on token ids (benchmarks); one with a tokenizer we
  // cannot read does not.
  if (tokenizer.ok()) {
    loaded->tokenizer = *std::move(tokenizer);
  } else if (tokenizer.status().code() != StatusCode::kFailedPrecondition) {
    return tokenizer.status().Annotate(loaded->path);
  }
  ASSIGN_OR_RETURN(FfnPlan plan, PlanFfn(*file, options.model.ffn));
  loaded->pool = std::make_unique<base::WorkerPool>(
      options.model.threads > 0 ? options.model.threads : NumProcessors());
  std::optional<store::BundleIndex> bundle;
  ASSIGN_OR_RETURN(loaded->memory, PlanWithShadow({.file = *file,
                                                   .ffn = plan,
                                                   .options = options.model,
                                                   .sizes = options.sizes,
                                                   .threads = loaded->pool->threads()},
                                                  plan, bundle));
  RETURN_IF_ERROR(LoadHeldWeights(*file, options, plan, *loaded));
  if (!loaded->weights->memory.huge()) {
    base::LogWarning(
        "the system denies huge pages (/sys/kernel/mm/transparent_hugepage/enabled); decoding will "
        "be slower");
  }
  RETURN_IF_ERROR(SetUpFfn(*file, options, std::move(plan), std::move(bundle), *loaded));
  RETURN_IF_ERROR(SetUpHotTier(*file, options, *loaded));
  RETURN_IF_ERROR(CheckAblation(*loaded));
  if (loaded->device == nullptr) loaded->file.reset();
  loaded->load_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return loaded;
}

Result<std::vector<FfnMode>> LoadedModel::ModesFor(const std::string& text) const {
  const bool zeros = model::HasTrueZeros(config.hidden_act);
  ASSIGN_OR_RETURN(FfnModes modes, ParseFfnModes(text, config.num_hidden_layers,
                                                 zeros ? FfnMode::kExact : FfnMode::kDense));
  if (modes.automatic) return ffn_modes;
  for (std::size_t l = 0; l < modes.layers.size(); ++l) {
    if (shadow_alone && modes.layers[l] == audit_shadow) {
      return base::FailedPrecondition(
          "mode '", FfnModeName(audit_shadow),
          "': its predictor is loaded for audits alone (engine.audit_shadow); name the mode among "
          "the further ones (--also-modes; the daemon: engine.ffn_also)");
    }
    const Status can = CanRun(modes.layers[l], config, weights->layers[l], &predictors->layers[l]);
    if (!can.ok()) return can;
  }
  return std::move(modes.layers);
}

void LoadedModel::SetModes(exec::Transformer& transformer,
                           const std::vector<FfnMode>& modes) const {
  for (std::size_t l = 0; l < modes.size(); ++l) {
    ffn::FfnPolicy& policy = transformer.ffn().policy(static_cast<int>(l));
    policy.mode = modes[l];
    policy.shift =
        modes[l] == FfnMode::kThreshold ? predictors->layers[l].threshold.value_or(0.0F) : 0.0F;
  }
}

HotStats LoadedModel::hot_stats(const exec::Transformer& transformer) const {
  HotStats stats = hot;
  UpdateHotStats(transformer, stats);
  return stats;
}

void LoadedModel::UpdateHotStats(const exec::Transformer& transformer, HotStats& stats) const {
  const ffn::HybridCounters c = transformer.hybrid_counters();
  stats.layers = c.cold.tokens;
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
                                  .ablation = ablation});
  }
  if (device_forward != nullptr) {  // its memory was shared out for so much
    CHECK_LE(tokens_max, device_forward->tokens_max());
    CHECK_LE(context_length, device_forward->context_length());
    CHECK_LE(logits_max, device_forward->logits_max());
  }
  auto transformer = std::make_unique<exec::Transformer>(
      exec::Transformer::Params{.config = config,
                                .weights = *weights,
                                .predictors = predictors.get(),
                                .ops = *ops,
                                .pool = workers != nullptr ? *workers : *pool,
                                .tokens_max = tokens_max,
                                .logits_max = logits_max,
                                .context_length = context_length,
                                .flash = flash.get(),
                                .deciding_held = memory.deciding_held,
                                .read_ahead = memory.read_ahead,
                                .stream = stream.get(),
                                .members = split != nullptr ? &split->cold() : nullptr,
                                .hot = std::move(partition),
                                .device = device_forward.get(),
                                .ablation = ablation});
  SetModes(*transformer, ffn_modes);
  return transformer;
}

}  // namespace thermocline::load
