#include "engine/load/hot_plan.h"

#include <algorithm>
#include <numeric>

#include "engine/base/index.h"
#include "engine/base/log.h"
#include "engine/base/ratio.h"
#include "engine/gpu/device_experts.h"
#include "engine/load/baseline_placement.h"
#include "engine/load/this_machine.h"
#include "engine/model/fingerprint.h"
#include "engine/placement/build_problem.h"
#include "engine/placement/placement_file.h"
#include "engine/placement/solver.h"
#include "engine/predictor/identity.h"

namespace thermocline::load {
namespace {

using placement::Machine;
using placement::Tier;

placement::Reading ReadingOf(FfnMode mode) {
  if (ffn::Predicts(mode)) return placement::Reading::kPredicted;
  return mode == FfnMode::kDense ? placement::Reading::kDense : placement::Reading::kExact;
}

// The memory that measuring may use beside a loaded model.
std::size_t RoomIn(const MemoryPlan& plan) {
  return plan.budget > plan.total() ? plan.budget - plan.total() : 0;
}

// The data of a model that planning needs.
struct ModelProfile {
  std::string hash;
  predictor::SideCar side_car;
  placement::BuildOptions options;

  bool counted() const { return !options.activations.empty(); }
};

// Predicted neurons over active ones, as measured by the calibration, or `otherwise`.
double Overprediction(const predictor::SideCar& side_car, double otherwise) {
  double predicted = 0, active = 0;
  for (const predictor::LayerSideCar& layer : side_car.layers) {
    if (layer.sign.has_value()) {
      predicted += layer.sign->predicted_share;
      active += layer.sign->active_share;
    } else if (layer.low_rank.has_value()) {
      predicted += layer.low_rank->predicted_share;
      active += layer.low_rank->active_share;
    }
  }
  return active > 0 ? std::max(1.0, predicted / active) : otherwise;
}

Result<ModelProfile> ReadModelProfile(const model::ModelFile& file, const std::string& side_car,
                                      const std::vector<FfnMode>& modes) {
  ModelProfile profile;
  ASSIGN_OR_RETURN(const auto identity, predictor::IdentityOf(file));
  profile.hash = identity.model_hash;
  const std::string path = side_car.empty() ? predictor::SideCarPath(file.path) : side_car;
  ASSIGN_OR_RETURN(profile.side_car, predictor::ReadSideCarOrEmpty(path, identity));
  placement::BuildOptions& o = profile.options;
  const model::ExpertConfig& experts = file.config.experts;
  if (experts.any()) o.active = base::Ratio(experts.num_experts_per_tok, experts.num_experts);
  for (const FfnMode mode : modes) o.readings.push_back(ReadingOf(mode));
  o.overprediction = Overprediction(profile.side_car, o.overprediction);
  const auto& layers = profile.side_car.layers;
  const bool counted = profile.side_car.profiled_tokens > 0 &&
                       std::all_of(layers.begin(), layers.end(),
                                   [](const auto& l) { return !l.activations.empty(); });
  if (!counted) return profile;
  for (const predictor::LayerSideCar& layer : layers) o.activations.push_back(layer.activations);
  o.profiled_tokens = profile.side_car.profiled_tokens;
  return profile;
}

int ContextOf(const model::ModelConfig& config, int asked) {
  return asked > 0 ? asked : std::min(config.max_position_embeddings, kContextDefault);
}

// The mean number of tokens that a token attends to over a context.
int MeanContext(const model::ModelConfig& config, int asked) {
  return std::max(1, ContextOf(config, asked) / 2);
}

std::vector<int> ByFrequency(int neurons, const ModelProfile& profile, std::size_t layer) {
  std::vector<int> ids(neurons);
  std::iota(ids.begin(), ids.end(), 0);
  if (!profile.counted()) return ids;
  const auto order = placement::ByFrequency(profile.options.activations[layer]);
  ids.assign(order.begin(), order.end());
  return ids;
}

// The share of hot neurons in the counted activations.
double ActiveShare(const ModelProfile& profile, const ffn::NeuronIds& hot) {
  double of_hot = 0, all = 0;
  for (std::size_t l = 0; profile.counted() && l < hot.size(); ++l) {
    const auto& counts = profile.options.activations[l];
    for (const std::uint32_t count : counts) all += count;
    for (const int id : hot[l]) of_hot += counts[id];
  }
  return all > 0 ? of_hot / all : 0;
}

// `placement`: a baseline, or "" for the plan itself.
Result<HotChoice> PlanNeurons(const model::ModelFile& file, const Machine& machine,
                              const ModelProfile& profile, std::string_view placement) {
  ASSIGN_OR_RETURN(const placement::Problem problem,
                   placement::BuildProblem(file, machine, profile.options));
  ASSIGN_OR_RETURN(const placement::Placement plan, placement::Solve(problem));
  HotChoice choice{.hot = {}, .tokens_per_s = plan.tokens_per_s(), .head = plan.head_hot};
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    std::vector<int> ids = ByFrequency(file.config.units_per_layer(), profile, l);
    ids.resize(plan.layers[l].hot);
    std::sort(ids.begin(), ids.end());
    choice.hot.push_back(std::move(ids));
    choice.home_layers += plan.layers[l].home_hot ? 1 : 0;
  }
  if (!placement.empty()) choice.tokens_per_s = 0;  // it is the plan's speed, not the baseline's
  PlaceAsBaseline(placement, file.config.units_per_layer(), choice.hot);
  const model::ExpertConfig& experts = file.config.experts;
  for (int l = 0; experts.any() && l < base::IntSize(choice.hot); ++l)
    if (!experts.InLayer(l)) choice.hot[l].clear();
  choice.active_share = ActiveShare(profile, choice.hot);
  return choice;
}

Result<HotChoice> ReadPlan(const std::string& path, const LoadedModel& m, const Machine& machine,
                           const std::string& hash) {
  ASSIGN_OR_RETURN(
      const placement::PlacementFile file,
      placement::ReadPlacement(path, {.model_hash = hash,
                                      .machine_key = machine.key,
                                      .num_hidden_layers = m.config.num_hidden_layers,
                                      .intermediate_size = m.config.units_per_layer()}));
  if (machine.hot_bytes > 0 && file.hot_bytes > machine.hot_bytes) {
    return base::FailedPrecondition(path, ": planned for ", base::HumanBytes(file.hot_bytes),
                                    " of hot memory, and ", base::HumanBytes(machine.hot_bytes),
                                    " may be used: plan anew");
  }
  HotChoice choice{.hot = {}, .head = file.head_hot};
  for (const placement::PlacementFile::Layer& layer : file.layers) {
    choice.home_layers += layer.home_hot ? 1 : 0;
    std::vector<int>& ids = choice.hot.emplace_back();
    for (int i = 0; i < base::IntSize(layer.tiers); ++i) {
      if (layer.tiers[i] == Tier::kHot) ids.push_back(i);
    }
  }
  return choice;
}

// Plans again if the file belongs to another model, machine or version, or is for more memory.
Result<HotChoice> ReadOrPlan(const std::string& path, const model::ModelFile& file,
                             const LoadedModel& m, const Machine& machine,
                             const ModelProfile& profile) {
  if (path.empty() || IsBaseline(path)) return PlanNeurons(file, machine, profile, path);
  auto choice = ReadPlan(path, m, machine, profile.hash);
  if (choice.ok()) choice->active_share = ActiveShare(profile, choice->hot);
  if (choice.ok() || choice.status().code() == StatusCode::kNotFound) return choice;
  base::LogWarning(choice.status().message(), "; it is not used, and the neurons are planned anew",
                   machine.hot_bytes == 0 ? " (for no memory: --hot-memory gives it some)" : "");
  return PlanNeurons(file, machine, profile, "");
}

// The model, and this machine's figures for it.
struct PlanInput {
  ModelProfile profile;
  Machine machine;
};

// `device`: the hot side; null: a second partition of the CPU.
Result<PlanInput> ReadPlanInput(const model::ModelFile& file, const LoadOptions& options,
                                device::Device* device, const LoadedModel& m) {
  ASSIGN_OR_RETURN(ModelProfile profile,
                   ReadModelProfile(file, options.model.ffn.side_car, m.ffn_modes));
  profile.options.context_length = MeanContext(file.config, options.model.context_length);
  ASSIGN_OR_RETURN(Machine machine, ThisMachine(file, profile.hash,
                                                {.ops = m.ops,
                                                 .threads = m.pool->threads(),
                                                 .hot = options.model.hot,
                                                 .device = device,
                                                 .measuring_bytes_max = RoomIn(m.memory)}));
  return PlanInput{std::move(profile), std::move(machine)};
}

// Plans with `plan`, and again with less memory if the choice needs more of the device (`bytes`)
// than its cost model predicts.
template <typename Plan, typename Bytes>
Result<HotChoice> Fit(const LoadedModel& m, Machine machine, const Plan& plan, const Bytes& bytes) {
  const std::int64_t budget = machine.hot_bytes;
  std::size_t least = 0;
  for (int tries = 0; tries < 6 && (tries == 0 || machine.hot_bytes > 0); ++tries) {
    ASSIGN_OR_RETURN(HotChoice choice, plan(machine));
    ASSIGN_OR_RETURN(least, bytes(choice));
    const auto over = static_cast<std::int64_t>(least) - budget;
    if (over <= 0) return choice;
    machine.hot_bytes -= over + over / 8;
  }
  return NoRoom(m, least, budget);
}

// Blocks of the KV cache that the host's pool will have.
int KvBlocksOf(const LoadOptions& options, const LoadedModel& m, int context) {
  if (!options.sizes.kv_bytes) return nn::BlocksFor(context) + 1;
  return static_cast<int>(options.sizes.kv_bytes(m.config, context, /*whole=*/true) /
                          nn::KvPool::BlockBytes(m.config, options.model.kv_type));
}

}  // namespace

DeviceSizes SizesOf(const LoadOptions& options, const LoadedModel& m) {
  const int context = ContextOf(m.config, options.model.context_length);
  return {.tokens_max = options.sizes.tokens_max,
          .context_length = context,
          .kv_blocks = KvBlocksOf(options, m, context),
          .logits_max = options.sizes.logits_max,
          .parts_max = std::max(1, options.sizes.sharing)};
}

Result<std::vector<std::vector<int>>> NeuronsByFrequency(const model::ModelFile& file,
                                                         const std::string& side_car) {
  ASSIGN_OR_RETURN(const ModelProfile profile, ReadModelProfile(file, side_car, {}));
  std::vector<std::vector<int>> order;
  order.reserve(file.config.num_hidden_layers);
  for (int l = 0; l < file.config.num_hidden_layers; ++l)
    order.push_back(ByFrequency(file.config.units_per_layer(), profile, l));
  return order;
}

Status NoRoom(const LoadedModel& m, std::size_t bytes, std::int64_t budget) {
  return base::ResourceExhausted(
      m.path, ": the least that a GPU can be given takes ", base::HumanBytes(bytes),
      " of its memory, and ", base::HumanBytes(budget),
      " may be used; give it more, a shorter context, or leave it out (device cpu)");
}

namespace {

// Whole layers on one side or the other: as many as fit on the device.
Result<HotChoice> WholeLayers(const LoadedModel& m, device::Device& gpu, const DeviceSizes& sizes,
                              std::int64_t budget) {
  const int layers = m.config.num_hidden_layers;
  const auto bytes = [&](int homes, bool head) -> Result<std::size_t> {
    ASSIGN_OR_RETURN(
        const auto need,
        m.MeasureOnDevice(gpu, {.home_layers = homes, .head = head, .hot = {}}, sizes));
    return need.weights + need.work;
  };
  std::size_t least = 0;
  for (int homes = layers; homes > 0; --homes) {
    for (const bool head : {true, false}) {
      if (head && homes < layers) continue;
      ASSIGN_OR_RETURN(least, bytes(homes, head));
      if (least <= static_cast<std::size_t>(budget))
        return HotChoice{.hot = {}, .home_layers = homes, .head = head};
    }
  }
  return NoRoom(m, least, budget);
}

Result<HotChoice> FitNeurons(const model::ModelFile& file, const LoadedModel& m,
                             device::Device& gpu, Machine machine, const ModelProfile& profile,
                             const DeviceSizes& sizes, std::string_view placement) {
  return Fit(
      m, std::move(machine),
      [&](const Machine& with) { return PlanNeurons(file, with, profile, placement); },
      [&](const HotChoice& choice) -> Result<std::size_t> {
        ASSIGN_OR_RETURN(
            const auto need,
            m.MeasureOnDevice(
                gpu, {.home_layers = choice.home_layers, .head = choice.head, .hot = choice.hot},
                sizes));
        return need.weights + need.work;
      });
}

Result<HotChoice> PlanDevice(const model::ModelFile& file, const LoadOptions& options,
                             const LoadedModel& m, device::Device& gpu, const DeviceSizes& sizes) {
  ASSIGN_OR_RETURN(auto input, ReadPlanInput(file, options, &gpu, m));
  auto& [profile, machine] = input;
  const std::string& placement = options.model.hot.placement;
  const bool baseline = IsBaseline(placement);
  if (!placement.empty() && !baseline) {
    auto choice = ReadPlan(placement, m, machine, profile.hash);
    if (choice.ok() || choice.status().code() == StatusCode::kNotFound) return choice;
    base::LogWarning(choice.status().message(), "; it is not used, and planned anew");
  }
  if (!m.weights->has_down_rows()) return WholeLayers(m, gpu, sizes, machine.hot_bytes);
  // Memory has been planned before: only the sides are chosen here.
  if (!machine.unified) machine.memory_bytes = std::int64_t{1} << 50;
  return FitNeurons(file, m, gpu, std::move(machine), profile, sizes,
                    baseline ? placement : std::string_view());
}

}  // namespace

Result<HotChoice> ChooseForDevice(const model::ModelFile& file, const LoadOptions& options,
                                  device::Device& gpu, const DeviceSizes& sizes, LoadedModel& out) {
  ASSIGN_OR_RETURN(HotChoice choice, PlanDevice(file, options, out, gpu, sizes));
  // A shadow that was not requested by name must not use memory that could hold more neurons.
  if (out.shadow_alone && options.model.ffn.audit_shadow == AuditShadow::kAuto &&
      choice.shares(out.config.intermediate_size)) {
    base::LogInfo("no predictor is audited in the shadow: not all neurons fit on the GPU");
    out.DropShadow();
    ASSIGN_OR_RETURN(choice, PlanDevice(file, options, out, gpu, sizes));
  }
  if (choice.home_layers == 0 && !choice.any_hot()) {
    return base::FailedPrecondition(
        gpu.Describe(),
        ": as it was measured, and with the memory it may use, it would make no token faster; "
        "--calibrate measures anew, device cpu leaves it out");
  }
  return choice;
}

Result<HotChoice> ChooseForPartition(const model::ModelFile& file, const LoadOptions& options,
                                     const LoadedModel& m) {
  ASSIGN_OR_RETURN(auto input, ReadPlanInput(file, options, nullptr, m));
  auto& [profile, machine] = input;
  // Memory has been planned before: only the sides are chosen here.
  machine.memory_bytes = std::int64_t{1} << 50;
  const std::string& path = options.model.hot.placement;
  if (!profile.counted() && path.empty()) {
    base::LogWarning(m.path,
                     ": it is not known which neurons are used most, so the hot ones are "
                     "taken as they come; `thermocline profile` counts them");
  }
  return ReadOrPlan(path, file, m, machine, profile);
}

namespace {

Result<HotChoice> FitExperts(const model::ModelFile& file, const LoadOptions& options,
                             device::Device& gpu, const LoadedModel& m, Machine machine,
                             const ModelProfile& profile) {
  return Fit(
      m, std::move(machine),
      [&](const Machine& with) {
        return ReadOrPlan(options.model.hot.placement, file, m, with, profile);
      },
      [&](const HotChoice& choice) -> Result<std::size_t> {
        const ffn::HotExperts hot(
            {.config = m.config, .weights = *m.weights, .flash = nullptr, .hot = choice.hot});
        return gpu::DeviceExperts::BytesFor({.device = gpu,
                                             .config = m.config,
                                             .weights = *m.weights,
                                             .hot = hot,
                                             .tokens_max = options.sizes.tokens_max});
      });
}

}  // namespace

Result<HotChoice> ChooseExperts(const model::ModelFile& file, const LoadOptions& options,
                                device::Device* device, const LoadedModel& m) {
  ASSIGN_OR_RETURN(auto input, ReadPlanInput(file, options, device, m));
  auto& [profile, machine] = input;
  ScaleToExperts(machine);
  // Memory has been planned before: only the sides are chosen here.
  machine.memory_bytes = std::int64_t{1} << 50;
  if (!profile.counted() && options.model.hot.placement.empty()) {
    base::LogWarning(m.path,
                     ": it is not known which experts are used most, so the hot ones are taken as "
                     "they come; `thermocline profile` counts them");
  }
  if (device != nullptr) return FitExperts(file, options, *device, m, machine, profile);
  return ReadOrPlan(options.model.hot.placement, file, m, machine, profile);
}

}  // namespace thermocline::load
