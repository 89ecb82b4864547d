// Loads a model according to the options: the order of reading its parts and setting them up.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "engine/base/log.h"
#include "engine/base/system_memory.h"
#include "engine/load/early_placement.h"
#include "engine/load/file_reading.h"
#include "engine/load/flash_setup.h"
#include "engine/load/hot_setup.h"
#include "engine/load/input_setup.h"
#include "engine/load/kv_advice.h"
#include "engine/load/mode_tuner.h"
#include "engine/load/prefetch_tuner.h"
#include "engine/model/expert_rows.h"
#include "engine/model/fingerprint.h"
#include "engine/model/open/builtin.h"
#include "engine/model/open/open_model.h"
#include "engine/model/weights/down_layout.h"

namespace thermocline::load {
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
  if (model.config.HasZeros() && !model.weights->has_down_rows() && !model.config.experts.any()) {
    const auto& layers = model.weights->layers;
    const bool turns = model.memory.tier == MemoryPlan::Tier::kMemory &&
                       std::all_of(layers.begin(), layers.end(), [](const model::LayerWeights& w) {
                         return !w.has_network() || model::CanTurnDown(w).ok();
                       });
    base::LogInfo(
        "the down projection is not neuron-major, so all of it is read for every token; "
        "`thermocline convert --down rows` makes a file whose down rows can be skipped too",
        turns ? ", and --down-layout rows (the daemon: engine.down_layout) turns it while loading"
              : "");
  }
}

// Makes down projections neuron-major, whatever the file's layout.
Status TurnDownProjections(LoadedModel& model) {
  if (model.memory.tier != MemoryPlan::Tier::kMemory)
    return base::FailedPrecondition(
        "down layout rows: the model does not fit into memory; `thermocline convert --down rows` "
        "makes a file that lies so");
  auto& layers = model.weights->layers;
  int rounded = 0;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    if (!layers[l].has_network()) continue;
    RETURN_IF_ERROR(model::CanTurnDown(layers[l]).Annotate(
        StrCat("down layout rows: the projection of layer ", l)));
    rounded += model::TurnsDownExactly(layers[l]) ? 0 : 1;
  }
  const std::size_t needed = model::TurnDownBytes(model.weights->FirstNetwork());
  if (needed > model.memory.RoomWhileLoading())
    return base::ResourceExhausted("down layout rows: turning a projection takes ",
                                   base::HumanBytes(needed),
                                   ", which the memory budget does not leave; `thermocline convert "
                                   "--down rows` makes a file that lies so");
  for (model::LayerWeights& layer : layers)
    if (layer.has_network()) model::TurnDown(layer, *model.pool);
  base::LogInfo("down projections are turned: neuron-major in memory",
                rounded > 0 ? ", quantised weights rounded once more" : "");
  return OkStatus();
}

Status SetUpFfn(const model::ModelFile& file, const LoadOptions& options, FfnPlan plan,
                std::optional<store::BundleIndex> bundle, bool measurable, LoadedModel& out) {
  const DownInMemory down = options.model.ffn.down;
  ASSIGN_OR_RETURN(out.expert_networks, LoadExpertNetworks(file.config, *out.weights, plan,
                                                           options.model.ffn, *out.pool));
  if (down == DownInMemory::kRows && !file.config.experts.any() && !out.weights->has_down_rows())
    RETURN_IF_ERROR(TurnDownProjections(out));
  // Predictors are made before the flash tier's cache is filled, because the weights that they are
  // made from take memory temporarily.
  ASSIGN_OR_RETURN(out.predictors,
                   LoadPredictors(file, *out.weights, plan, options.model.ffn, *out.pool));
  if (plan.inputs) RETURN_IF_ERROR(SetUpInputs(options.model.ffn, bundle.has_value(), out));
  if (plan.may_use_inputs && !plan.inputs && !measurable) DropInputs(out);
  if (bundle.has_value()) RETURN_IF_ERROR(OpenFlash(file, options, *std::move(bundle), out));
  if (measurable) {
    out.prefetch_bytes = FastestPrefetch(*out.weights, *out.ops, *out.pool);
    if (out.prefetch_bytes == 0)
      base::LogInfo(
          "this processor decodes faster without being asked for weights ahead (measured)");
  }
  out.side_car = std::move(plan.side_car);
  out.side_car_path = plan.side_car_path;
  out.ffn_automatic = plan.modes.automatic;
  out.audit_shadow = plan.shadow;
  out.shadow_alone = plan.shadow_alone;
  out.ffn_modes = std::move(plan.modes.layers);
  if (out.ffn_automatic && !measurable) {
    // Bytes from flash, or the GPU's work, determine the speed, not the CPU's memory reads: the
    // mode that reads the least within the recall is taken.
    const FfnMode least = plan.candidates.empty() ? FfnMode::kExact : plan.candidates.front();
    out.ffn_modes.assign(out.weights->layers.size(),
                         out.config.HasZeros() ? least : FfnMode::kDense);
  } else if (out.ffn_automatic) {
    out.ffn_modes.assign(out.weights->layers.size(), FfnMode::kDense);
    RETURN_IF_ERROR(ChooseModes(out, {.candidates = plan.candidates,
                                      .also = plan.also,
                                      .may_turn_down = down == DownInMemory::kAuto}));
    if (plan.may_use_inputs) RETURN_IF_ERROR(TryInputs(plan.inputs, out));
  }
  if (out.config.HasCuts() && measurable) {
    for (std::size_t l = 0; l < out.ffn_modes.size(); ++l)
      UseLayoutsOf(out.ffn_modes[l], l, out, plan.also);
  }
  LogModes(out);
  const std::string advice =
      out.device == nullptr ? KvAdvice(out.config, out.kv_type, out.context, *out.ops) : "";
  if (!advice.empty()) base::LogInfo(advice);
  return OkStatus();
}

// Checks that the disabled mechanisms would have been used: otherwise a measurement would compare
// identical configurations.
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

// Drops a shadow that was not requested by name if the model does not fit into memory with it.
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

// The memory plan. Rows on flash have the file's own types, some of which a GPU may not support:
// then the GPU is given up or, if more than this plan depends on it, an error is returned.
Result<MemoryPlan> PlanWithGpu(const MemoryNeeds& needs, model::ModelFile& file, FfnPlan& plan,
                               Accelerator& gpu, std::optional<store::BundleIndex>& bundle) {
  auto memory = PlanWithShadow(needs, plan, bundle);
  if (!memory.ok() || !bundle.has_value() || !file.for_device) return memory;
  const Status why = base::FailedPrecondition(
      file.path, ": weights come from flash, and those of type ",
      file.TypeWithoutDeviceKernels()->name,
      " have no kernels for GPUs; `thermocline convert --quantize` makes a file of another type");
  if (needs.device != nullptr || needs.options.hot.device == HotDevice::kCuda) return why;
  gpu = why;
  file.for_device = false;
  bundle.reset();
  return PlanWithShadow(needs, plan, bundle);
}

// Opens the file and reads the model's properties from it. `ahead`: begins while the vocabulary is
// prepared, if it will probably be of use.
Status OpenModel(const ModelOptions& options, LoadedModel& loaded,
                 std::optional<ReadAhead>& ahead) {
  ASSIGN_OR_RETURN(loaded.ops, ChooseOps(options.cpu_isa));
  ASSIGN_OR_RETURN(loaded.path, model::ResolveModel(options.path));
  ASSIGN_OR_RETURN(loaded.file, model::OpenModelFile(loaded.path));
  model::ModelFile& file = *loaded.file;
  if (MayReadAhead(options, file)) ahead.emplace(file);
  loaded.format = file.format;
  file.config.hidden_act = options.activation.value_or(file.config.hidden_act);
  if (file.config.hidden_act == Activation::kXielu && file.config.xielu.empty())
    return base::InvalidArgument(loaded.path,
                                 ": the activation xielu needs parameters of each layer, which "
                                 "this model does not have");
  loaded.config = file.config;
  loaded.sampling = file.sampling;
  if (!options.record_trace.empty()) {
    ASSIGN_OR_RETURN(loaded.hash, model::Fingerprint(file));
  }
  loaded.kv_type = KvTypeOf(options, file.config);
  loaded.quantize_head = options.quantize_head;
  loaded.verify = options.verify;
  loaded.ablation = options.ablation;
  file.vocabulary.one_separator = file.config.architecture->one_separator;
  auto tokenizer = text::Tokenizer::Create(file.vocabulary);
  // A model without a tokenizer still runs on token ids (benchmarks); one whose tokenizer is not
  // supported does not.
  if (tokenizer.ok()) {
    loaded.tokenizer = *std::move(tokenizer);
  } else if (tokenizer.status().code() != StatusCode::kFailedPrecondition) {
    return tokenizer.status().Annotate(loaded.path);
  }
  loaded.pool = std::make_unique<base::WorkerPool>(options.threads > 0 ? options.threads
                                                                       : base::UsableProcessors());
  return OkStatus();
}

// The K and V of a text of an encoder stay in memory whole, because its tokens see those behind
// them.
void FitEncoder(const model::ModelConfig& config, LoadOptions& options) {
  constexpr int kTokensMax = 8192;
  int& context = options.model.context_length;
  const int most = std::min(config.max_position_embeddings, kTokensMax);
  if (context == 0 || (context > most && context <= config.max_position_embeddings)) context = most;
  options.model.kv_type = KvTypeOf(options.model, config);
}

// The content of the model's files as far as it can be told without reading all of them.
Result<std::string> FingerprintOf(const model::ModelFile& file) {
  ASSIGN_OR_RETURN(std::string text, model::Fingerprint(file));
  for (const auto& part : file.files) {
    std::error_code error;
    const auto written = std::filesystem::last_write_time(part->path(), error);
    text += StrCat("|", part->size(), "|", written.time_since_epoch().count());
  }
  return text;
}

// With shared memory the CPU computes all experts; it also computes layers for which a GPU has no
// kernels, and layers in mode inputs.
Status KeepOnHost(const ModelOptions& options, const model::ModelConfig& config, Accelerator& gpu) {
  const HotOptions& hot = options.hot;
  if (!gpu.ok()) return OkStatus();
  const bool four_bits = options.kv_type == KvType::kQ4_0;
  const bool unified = config.experts.any() && (*gpu)->properties().unified;
  const bool host = !config.DeviceComputesLayers() && !config.experts.any();
  const bool inputs = options.ffn.Names(FfnMode::kInputs), adapters = !options.lora.empty();
  if (!unified && !host && !four_bits && !inputs && !adapters) return OkStatus();
  const Status why = base::FailedPrecondition(
      inputs      ? "mode 'inputs' is computed by the CPU alone"
      : adapters  ? "LoRA adapters are computed by the CPU alone"
      : four_bits ? "GPUs have no kernels for keys and values of type q4_0: use q8_0 or f16"
      : unified   ? "a mixture's experts gain nothing from a GPU that shares the host's memory"
                  : StrCat("layers of the family '", config.architecture->name,
                           "' are computed by the CPU"));
  if (hot.device == HotDevice::kCuda) return why.Annotate("device cuda");
  gpu = why;
  return OkStatus();
}

// Decides a GPU's share before loading, where that is possible; else the GPU is given up, or is an
// error if it was asked for.
Status TryEarly(const LoadOptions& options, Accelerator& gpu, FfnPlan& plan, LoadedModel& loaded,
                std::optional<DeviceShare>& early) {
  model::ModelFile& file = *loaded.file;
  if (!gpu.ok() || file.config.experts.any() || !CanPlaceEarly(file, options.model, **gpu))
    return OkStatus();
  FfnPlan fitted = plan;
  auto share = PlaceEarly(file, options, **gpu, fitted, loaded);
  if (share.ok()) {
    early = *share;
    plan = std::move(fitted);
    return OkStatus();
  }
  if (options.model.hot.device == HotDevice::kCuda) return share.status().Annotate("device cuda");
  gpu = share.status();
  file.for_device = false;
  return OkStatus();
}

// Adapters change products of matrices that are in memory, all of them on one side.
Status CheckAdapters(const ModelOptions& options, const MemoryPlan& memory) {
  if (options.lora.empty()) return OkStatus();
  if (options.hot.bytes > 0 && options.hot.device != HotDevice::kCuda)
    return base::FailedPrecondition(
        "lora: adapters are not computed beside a hot tier (hot.bytes)");
  if (memory.tier == MemoryPlan::Tier::kNeurons)
    return base::FailedPrecondition(
        "lora: the model does not fit into memory, and adapters do not change neurons on flash");
  return OkStatus();
}

// `gpu`: the opened GPU, or the error. `early`: receives the GPU's share if that is decided before
// loading; from then on the host does not have the whole model.
Result<std::unique_ptr<LoadedModel>> LoadWith(LoadOptions options, Accelerator gpu,
                                              std::optional<DeviceShare>& early) {
  auto loaded = std::make_unique<LoadedModel>();
  std::optional<ReadAhead> ahead;  // ends before the file
  RETURN_IF_ERROR(OpenModel(options.model, *loaded, ahead));
  model::ModelFile& file = *loaded->file;
  if (options.fingerprint) {
    ASSIGN_OR_RETURN(loaded->fingerprint, FingerprintOf(file));
  }
  WorkSizes& sizes = options.sizes;
  if (sizes.tokens_max == 0) sizes.tokens_max = PrefillChunk(file.config);
  if (file.config.architecture->encoder) FitEncoder(file.config, options);
  loaded->step_tokens_max = sizes.tokens_max = std::max(sizes.tokens_max, sizes.logits_max);
  RETURN_IF_ERROR(KeepOnHost(options.model, file.config, gpu));
  loaded->kv_whole = sizes.kv_whole = gpu.ok() && !file.config.experts.any();
  file.for_device = gpu.ok() && file.TypeWithoutDeviceKernels() != nullptr;
  const bool unified = gpu.ok() && (*gpu)->properties().unified;
  if (unified) ahead.reset();
  loaded->weights_read = ConfigureFileReading(options.model.reading, unified, file);
  if (file.config.experts.any() && options.model.ffn.down == DownInMemory::kRows)
    RETURN_IF_ERROR(model::TurnExpertsDown(file, /*to_rows=*/true).Annotate("down layout rows"));
  ASSIGN_OR_RETURN(FfnPlan plan, PlanFfn(file, options.model.ffn));
  ASSIGN_OR_RETURN(auto adapters, OpenAdapters(options.model.lora, file.config));
  // A GPU allocates its KV cache in full, so the default context is capped.
  if (gpu.ok()) sizes.context_default_max = std::min(sizes.context_default_max, kContextDefault);
  ASSIGN_OR_RETURN(options.model.context_length,
                   ChooseContext({.file = file,
                                  .ffn = plan,
                                  .options = options.model,
                                  .sizes = sizes,
                                  .threads = loaded->pool->threads(),
                                  .adapter_bytes = adapters.bytes()}));
  loaded->context = options.model.context_length;
  RETURN_IF_ERROR(TryEarly(options, gpu, plan, *loaded, early));
  const DeviceShare* device = early.has_value() ? &*early : nullptr;
  std::optional<store::BundleIndex> bundle;
  ASSIGN_OR_RETURN(loaded->memory, PlanWithGpu({.file = file,
                                                .ffn = plan,
                                                .options = options.model,
                                                .sizes = options.sizes,
                                                .threads = loaded->pool->threads(),
                                                .device = device,
                                                .adapter_bytes = adapters.bytes()},
                                               file, plan, gpu, bundle));
  const MemoryPlan::Tier planned = device != nullptr && device->beside_flash()
                                       ? MemoryPlan::Tier::kNeurons
                                       : MemoryPlan::Tier::kMemory;
  if (device != nullptr && loaded->memory.tier != planned) {
    return base::ResourceExhausted(
        file.path,
        ": memory became short while the model was planned: end other programs, give a shorter "
        "context, or leave the GPU out (device cpu)");
  }
  RETURN_IF_ERROR(CheckAdapters(options.model, loaded->memory));
  if (loaded->memory.tier != MemoryPlan::Tier::kMemory) ahead.reset();
  RETURN_IF_ERROR(LoadHeldWeights(file, options, device, plan, *loaded));
  ahead.reset();
  if (!loaded->weights->memory.huge()) {
    base::LogWarning(
        "the system denies huge pages (/sys/kernel/mm/transparent_hugepage/enabled); decoding will "
        "be slower");
  }
  const bool measurable = device == nullptr && loaded->memory.tier == MemoryPlan::Tier::kMemory;
  RETURN_IF_ERROR(SetUpFfn(file, options, std::move(plan), std::move(bundle), measurable, *loaded));
  RETURN_IF_ERROR(SetUpHotTier(file, options, std::move(gpu), device, *loaded));
  RETURN_IF_ERROR(CheckAblation(*loaded));
  ASSIGN_OR_RETURN(loaded->adapters, PackAdapters(std::move(adapters), *loaded->weights));
  if (loaded->device == nullptr) loaded->file.reset();
  return loaded;
}

}  // namespace

Result<std::unique_ptr<LoadedModel>> LoadModel(const LoadOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  const HotOptions& hot = options.model.hot;
  std::optional<DeviceShare> early;
  auto loaded = LoadWith(
      options,
      hot.device == HotDevice::kCpu ? base::Unavailable("not asked for") : OpenAccelerator(options),
      early);
  if (!loaded.ok() && early.has_value() && hot.device == HotDevice::kAuto) {
    // The host does not have the whole model: loads it again without the GPU.
    base::LogWarning("computing without a GPU: ", loaded.status().message());
    LoadOptions alone = options;
    alone.model.hot = {};
    std::optional<DeviceShare> none;
    const std::string why = loaded.status().message();
    loaded = LoadWith(alone, base::Unavailable(why), none);
    if (loaded.ok()) (*loaded)->hot.fallback = why;
  }
  if (!loaded.ok()) return loaded;
  (*loaded)->load_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return loaded;
}

}  // namespace thermocline::load
