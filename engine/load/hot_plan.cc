#include "engine/load/hot_plan.h"

#include <algorithm>
#include <numeric>

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
struct Subject {
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

Result<Subject> StudyModel(const model::ModelFile& file, const std::string& side_car,
                           const std::vector<FfnMode>& modes) {
  Subject subject;
  ASSIGN_OR_RETURN(const auto identity, predictor::IdentityOf(file));
  subject.hash = identity.model_hash;
  const std::string path = side_car.empty() ? predictor::SideCarPath(file.path) : side_car;
  ASSIGN_OR_RETURN(subject.side_car, predictor::ReadSideCarOrEmpty(path, identity));
  placement::BuildOptions& o = subject.options;
  const model::ExpertConfig& experts = file.config.experts;
  if (experts.any()) o.active = base::Ratio(experts.num_experts_per_tok, experts.num_experts);
  for (const FfnMode mode : modes) o.readings.push_back(ReadingOf(mode));
  o.overprediction = Overprediction(subject.side_car, o.overprediction);
  const auto& layers = subject.side_car.layers;
  const bool counted = subject.side_car.profiled_tokens > 0 &&
                       std::all_of(layers.begin(), layers.end(),
                                   [](const auto& l) { return !l.activations.empty(); });
  if (!counted) return subject;
  for (const predictor::LayerSideCar& layer : layers) o.activations.push_back(layer.activations);
  o.profiled_tokens = subject.side_car.profiled_tokens;
  return subject;
}

int ContextOf(const model::ModelConfig& config, int asked) {
  return asked > 0 ? asked : std::min(config.max_position_embeddings, kContextDefault);
}

// The mean number of tokens that a token attends to over a context.
int MeanContext(const model::ModelConfig& config, int asked) {
  return std::max(1, ContextOf(config, asked) / 2);
}

std::vector<int> ByUse(int neurons, const Subject& subject, std::size_t layer) {
  std::vector<int> ids(neurons);
  std::iota(ids.begin(), ids.end(), 0);
  if (!subject.counted()) return ids;
  const auto order = placement::ByFrequency(subject.options.activations[layer]);
  ids.assign(order.begin(), order.end());
  return ids;
}

// The share of hot neurons in the counted activations.
double ActiveShare(const Subject& subject, const ffn::NeuronIds& hot) {
  double of_hot = 0, all = 0;
  for (std::size_t l = 0; subject.counted() && l < hot.size(); ++l) {
    const auto& counts = subject.options.activations[l];
    for (const std::uint32_t count : counts) all += count;
    for (const int id : hot[l]) of_hot += counts[id];
  }
  return all > 0 ? of_hot / all : 0;
}

// `placement`: a baseline, or "" for the plan itself.
Result<Chosen> PlanNeurons(const model::ModelFile& file, const Machine& machine,
                           const Subject& subject, std::string_view placement) {
  ASSIGN_OR_RETURN(const placement::Problem problem,
                   placement::BuildProblem(file, machine, subject.options));
  ASSIGN_OR_RETURN(const placement::Placement plan, placement::Solve(problem));
  Chosen chosen{.hot = {}, .tokens_per_s = plan.tokens_per_s(), .head = plan.head_hot};
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    std::vector<int> ids = ByUse(file.config.units_per_layer(), subject, l);
    ids.resize(plan.layers[l].hot);
    std::sort(ids.begin(), ids.end());
    chosen.hot.push_back(std::move(ids));
    chosen.home_layers += plan.layers[l].home_hot ? 1 : 0;
  }
  if (!placement.empty()) chosen.tokens_per_s = 0;  // it is the plan's speed, not the baseline's
  PlaceAsBaseline(placement, file.config.units_per_layer(), chosen.hot);
  const model::ExpertConfig& experts = file.config.experts;
  for (std::size_t l = 0; experts.any() && l < chosen.hot.size(); ++l)
    if (!experts.InLayer(static_cast<int>(l))) chosen.hot[l].clear();
  chosen.active_share = ActiveShare(subject, chosen.hot);
  return chosen;
}

Result<Chosen> ReadPlan(const std::string& path, const LoadedModel& m, const Machine& machine,
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
  Chosen chosen{.hot = {}, .head = file.head_hot};
  for (const placement::PlacementFile::Layer& layer : file.layers) {
    chosen.home_layers += layer.home_hot ? 1 : 0;
    std::vector<int>& ids = chosen.hot.emplace_back();
    for (std::size_t i = 0; i < layer.tiers.size(); ++i) {
      if (layer.tiers[i] == Tier::kHot) ids.push_back(static_cast<int>(i));
    }
  }
  return chosen;
}

// Plans again if the file belongs to another model, machine or version, or is for more memory.
Result<Chosen> ReadOrPlan(const std::string& path, const model::ModelFile& file,
                          const LoadedModel& m, const Machine& machine, const Subject& subject) {
  if (path.empty() || IsBaseline(path)) return PlanNeurons(file, machine, subject, path);
  auto chosen = ReadPlan(path, m, machine, subject.hash);
  if (chosen.ok()) chosen->active_share = ActiveShare(subject, chosen->hot);
  if (chosen.ok() || chosen.status().code() == StatusCode::kNotFound) return chosen;
  base::LogWarning(chosen.status().message(), "; it is not used, and the neurons are planned anew",
                   machine.hot_bytes == 0 ? " (for no memory: --hot-memory gives it some)" : "");
  return PlanNeurons(file, machine, subject, "");
}

// The model, and this machine's figures for it.
struct Studied {
  Subject subject;
  Machine machine;
};

// `device`: the hot side; null: a second partition of the CPU.
Result<Studied> Study(const model::ModelFile& file, const LoadOptions& options,
                      device::Device* device, const LoadedModel& m) {
  ASSIGN_OR_RETURN(Subject subject, StudyModel(file, options.model.ffn.side_car, m.ffn_modes));
  subject.options.context_length = MeanContext(file.config, options.model.context_length);
  ASSIGN_OR_RETURN(Machine machine, ThisMachine(file, subject.hash,
                                                {.ops = m.ops,
                                                 .threads = m.pool->threads(),
                                                 .hot = options.model.hot,
                                                 .device = device,
                                                 .measuring_bytes_max = RoomIn(m.memory)}));
  return Studied{std::move(subject), std::move(machine)};
}

// Plans with `plan`, and again with less memory if the choice needs more of the device (`bytes`)
// than its cost model predicts.
template <typename Plan, typename Bytes>
Result<Chosen> Fit(const LoadedModel& m, Machine machine, const Plan& plan, const Bytes& bytes) {
  const std::int64_t budget = machine.hot_bytes;
  std::size_t least = 0;
  for (int tries = 0; tries < 6 && (tries == 0 || machine.hot_bytes > 0); ++tries) {
    ASSIGN_OR_RETURN(Chosen chosen, plan(machine));
    ASSIGN_OR_RETURN(least, bytes(chosen));
    const auto over = static_cast<std::int64_t>(least) - budget;
    if (over <= 0) return chosen;
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

Result<std::vector<std::vector<int>>> NeuronsByUse(const model::ModelFile& file,
                                                   const std::string& side_car) {
  ASSIGN_OR_RETURN(const Subject subject, StudyModel(file, side_car, {}));
  std::vector<std::vector<int>> order;
  for (std::size_t l = 0; l < static_cast<std::size_t>(file.config.num_hidden_layers); ++l)
    order.push_back(ByUse(file.config.units_per_layer(), subject, l));
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
Result<Chosen> WholeLayers(const LoadedModel& m, device::Device& gpu, const DeviceSizes& sizes,
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
        return Chosen{.hot = {}, .home_layers = homes, .head = head};
    }
  }
  return NoRoom(m, least, budget);
}

Result<Chosen> FitNeurons(const model::ModelFile& file, const LoadedModel& m, device::Device& gpu,
                          Machine machine, const Subject& subject, const DeviceSizes& sizes,
                          std::string_view placement) {
  return Fit(
      m, std::move(machine),
      [&](const Machine& with) { return PlanNeurons(file, with, subject, placement); },
      [&](const Chosen& chosen) -> Result<std::size_t> {
        ASSIGN_OR_RETURN(
            const auto need,
            m.MeasureOnDevice(
                gpu, {.home_layers = chosen.home_layers, .head = chosen.head, .hot = chosen.hot},
                sizes));
        return need.weights + need.work;
      });
}

Result<Chosen> PlanDevice(const model::ModelFile& file, const LoadOptions& options,
                          const LoadedModel& m, device::Device& gpu, const DeviceSizes& sizes) {
  ASSIGN_OR_RETURN(auto studied, Study(file, options, &gpu, m));
  auto& [subject, machine] = studied;
  const std::string& placement = options.model.hot.placement;
  const bool baseline = IsBaseline(placement);
  if (!placement.empty() && !baseline) {
    auto chosen = ReadPlan(placement, m, machine, subject.hash);
    if (chosen.ok() || chosen.status().code() == StatusCode::kNotFound) return chosen;
    base::LogWarning(chosen.status().message(), "; it is not used, and planned anew");
  }
  if (!m.weights->has_down_rows()) return WholeLayers(m, gpu, sizes, machine.hot_bytes);
  // Memory has been planned before: only the sides are chosen here.
  if (!machine.unified) machine.memory_bytes = std::int64_t{1} << 50;
  return FitNeurons(file, m, gpu, std::move(machine), subject, sizes,
                    baseline ? placement : std::string_view());
}

}  // namespace

Result<Chosen> ChooseForDevice(const model::ModelFile& file, const LoadOptions& options,
                               device::Device& gpu, const DeviceSizes& sizes, LoadedModel& out) {
  ASSIGN_OR_RETURN(Chosen chosen, PlanDevice(file, options, out, gpu, sizes));
  // A shadow that was not requested by name must not use memory that could hold more neurons.
  if (out.shadow_alone && options.model.ffn.audit_shadow == AuditShadow::kAuto &&
      chosen.shares(out.config.intermediate_size)) {
    base::LogInfo("no predictor is audited in the shadow: not all neurons fit on the GPU");
    out.DropShadow();
    ASSIGN_OR_RETURN(chosen, PlanDevice(file, options, out, gpu, sizes));
  }
  if (chosen.home_layers == 0 && !chosen.any_hot()) {
    return base::FailedPrecondition(
        gpu.Describe(),
        ": as it was measured, and with the memory it may use, it would make no token faster; "
        "--calibrate measures anew, device cpu leaves it out");
  }
  return chosen;
}

Result<Chosen> ChooseForPartition(const model::ModelFile& file, const LoadOptions& options,
                                  const LoadedModel& m) {
  ASSIGN_OR_RETURN(auto studied, Study(file, options, nullptr, m));
  auto& [subject, machine] = studied;
  // Memory has been planned before: only the sides are chosen here.
  machine.memory_bytes = std::int64_t{1} << 50;
  const std::string& path = options.model.hot.placement;
  if (!subject.counted() && path.empty()) {
    base::LogWarning(m.path,
                     ": it is not known which neurons are used most, so the hot ones are "
                     "taken as they come; `thermocline profile` counts them");
  }
  return ReadOrPlan(path, file, m, machine, subject);
}

namespace {

Result<Chosen> FitExperts(const model::ModelFile& file, const LoadOptions& options,
                          device::Device& gpu, const LoadedModel& m, Machine machine,
                          const Subject& subject) {
  return Fit(
      m, std::move(machine),
      [&](const Machine& with) {
        return ReadOrPlan(options.model.hot.placement, file, m, with, subject);
      },
      [&](const Chosen& chosen) -> Result<std::size_t> {
        const ffn::HotExperts hot(
            {.config = m.config, .weights = *m.weights, .flash = nullptr, .hot = chosen.hot});
        return gpu::DeviceExperts::BytesFor({.device = gpu,
                                             .config = m.config,
                                             .weights = *m.weights,
                                             .hot = hot,
                                             .tokens_max = options.sizes.tokens_max});
      });
}

}  // namespace

Result<Chosen> ChooseExperts(const model::ModelFile& file, const LoadOptions& options,
                             device::Device* device, const LoadedModel& m) {
  ASSIGN_OR_RETURN(auto studied, Study(file, options, device, m));
  auto& [subject, machine] = studied;
  AsForExperts(machine);
  // Memory has been planned before: only the sides are chosen here.
  machine.memory_bytes = std::int64_t{1} << 50;
  if (!subject.counted() && options.model.hot.placement.empty()) {
    base::LogWarning(m.path,
                     ": it is not known which experts are used most, so the hot ones are taken as "
                     "they come; `thermocline profile` counts them");
  }
  if (device != nullptr) return FitExperts(file, options, *device, m, machine, subject);
  return ReadOrPlan(options.model.hot.placement, file, m, machine, subject);
}

}  // namespace thermocline::load
