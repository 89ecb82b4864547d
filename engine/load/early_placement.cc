#include "engine/load/early_placement.h"

#include <algorithm>
#include <numeric>

#include "engine/base/file.h"
#include "engine/base/index.h"
#include "engine/base/log.h"
#include "engine/load/hot_plan.h"
#include "engine/store/bundle_format.h"

namespace thermocline::load {
namespace {

// Norms and biases, and the types and shapes of all matrices.
Result<std::unique_ptr<model::Weights>> ReadShapes(const model::ModelFile& file,
                                                   const LoadOptions& options,
                                                   base::WorkerPool& pool) {
  model::LayerParts parts = model::kNoParts;
  parts.vectors = true;
  return model::LoadWeights(file, pool,
                            {.quantize_head = options.model.quantize_head,
                             .parts = [=](int) { return parts; },
                             .shared = {false, false},
                             .log_conversions = false});
}

bool HasBundle(const model::ModelFile& file, const ModelOptions& options) {
  const std::string& given = options.memory.bundle;
  return base::PathExists(given.empty() ? store::BundlePath(file.path) : given);
}

class EarlyPlanner {
 public:
  EarlyPlanner(const model::ModelFile& file, const LoadOptions& options, device::Device& device,
               FfnPlan& plan, LoadedModel& out)
      : file_(file), options_(options), device_(device), plan_(plan), out_(out) {}

  Result<DeviceShare> Run(std::size_t budget) {
    const int layers = file_.config.num_hidden_layers;
    ASSIGN_OR_RETURN(const auto all, model::MeasureWeights(file_, {}));
    passing_ = *std::max_element(all.images.begin(), all.images.end());
    DeviceShare share;
    Status refused;  // for the largest number of layers that the device can hold
    for (int homes = layers; homes > 0; --homes) {
      for (const bool head : {true, false}) {
        if (head && homes < layers) continue;
        ASSIGN_OR_RETURN(share, Measure(homes, head));
        if (share.bytes > budget) continue;
        // A weight is on one side or the other, but K and V of a layer on the device are planned
        // for both sides: fewer layers may fit although more do not.
        Status fits = CheckFits(share);
        if (fits.ok()) return share;
        if (fits.code() != StatusCode::kResourceExhausted) return fits;
        if (refused.ok()) refused = std::move(fits);
      }
    }
    if (!refused.ok()) return refused;
    return NoRoom(out_, share.bytes, budget);
  }

  // Attention of as many layers as fit, and the largest number of their most used neurons for which
  // the cache of the others holds at least as many.
  Result<DeviceShare> RunBesideFlash(std::size_t budget) {
    ASSIGN_OR_RETURN(const auto order, NeuronsByFrequency(file_, options_.model.ffn.side_car));
    model::LayerParts attention = model::kNoParts;
    attention.attention = true;
    ASSIGN_OR_RETURN(const auto sizes,
                     model::MeasureWeights(file_, {.parts = [=](int) { return attention; }}));
    passing_ = *std::max_element(sizes.images.begin(), sizes.images.end());
    const int neurons = file_.config.intermediate_size;
    Status refused;
    for (int homes = file_.config.num_hidden_layers; homes > 0; --homes) {
      auto share = TryBesideFlash(order, homes, 0, budget);
      if (!share.ok() && share.status().code() != StatusCode::kResourceExhausted) return share;
      if (!share.ok()) {
        if (refused.ok()) refused = share.status();
        continue;
      }
      // The largest number of neurons, in steps of 1/64 of the layer.
      for (int step = 32, count = 0; step > 0; step /= 2) {
        auto more = TryBesideFlash(order, homes, (count + step) * neurons / 64, budget);
        if (!more.ok()) continue;
        count += step;
        share = std::move(more);
      }
      return share;
    }
    return refused;
  }

 private:
  Result<DeviceShare> Measure(int homes, bool head, std::vector<std::vector<int>> hot = {}) const {
    DeviceShare share{.home_layers = homes, .head = head, .hot = std::move(hot)};
    const bool audits = Audits(plan_, options_.model.ffn);
    share.networks = out_.weights->has_down_rows() || !audits;
    DeviceSizes sizes = SizesOf(options_, out_);
    sizes.audits = audits;
    ASSIGN_OR_RETURN(const auto need,
                     out_.MeasureOnDevice(device_, PlacementOf(share, out_), sizes));
    // No predictor is loaded yet, so `bytes` adds those of all layers, the most the device can get.
    const std::size_t alone =
        head && !file_.config.tie_word_embeddings ? out_.weights->output.weight.bytes() : 0;
    share.passing = std::max(passing_, alone);
    share.bytes =
        need.weights + need.work + PredictorBytes(file_.config, plan_, options_.model.ffn);
    return share;
  }

  // ResourceExhausted if `count` neurons of each home layer are too many.
  Result<DeviceShare> TryBesideFlash(const std::vector<std::vector<int>>& order, int homes,
                                     int count, std::size_t budget) const {
    std::vector<std::vector<int>> hot(order.size());
    for (int l = 0; l < homes; ++l) {
      hot[l].assign(order[l].begin(), order[l].begin() + count);
      std::sort(hot[l].begin(), hot[l].end());
    }
    const bool head = homes == file_.config.num_hidden_layers;
    ASSIGN_OR_RETURN(DeviceShare share, Measure(homes, head, std::move(hot)));
    if (share.bytes > budget) return NoRoom(out_, share.bytes, budget);
    ASSIGN_OR_RETURN(const MemoryPlan memory, PlanWith(share));
    const auto there = base::Area(count, homes);
    const bool neurons = memory.tier == MemoryPlan::Tier::kNeurons;
    if (neurons && memory.slots >= there) return share;
    return base::ResourceExhausted(
        file_.path, neurons ? ": the cache of neurons would be smaller than the GPU's part"
                            : ": beside a GPU that shares the memory single neurons can come from "
                              "flash, and the bundle file holds whole layers");
  }

  Result<MemoryPlan> PlanWith(const DeviceShare& share) const {
    std::optional<store::BundleIndex> bundle;
    return PlanMemory({.file = file_,
                       .ffn = plan_,
                       .options = options_.model,
                       .sizes = options_.sizes,
                       .threads = out_.pool->threads(),
                       .device = &share},
                      bundle);
  }

  Status CheckFits(const DeviceShare& share) const {
    ASSIGN_OR_RETURN(const MemoryPlan memory, PlanWith(share));
    if (memory.tier == MemoryPlan::Tier::kMemory) return OkStatus();
    return base::ResourceExhausted(
        file_.path, ": GPU and CPU share ", base::HumanBytes(memory.budget),
        " of memory, which does not hold the model: give more memory, a shorter context or a "
        "smaller model, or leave the GPU out (device cpu)");
  }

  const model::ModelFile& file_;
  const LoadOptions& options_;
  device::Device& device_;
  FfnPlan& plan_;
  LoadedModel& out_;
  std::size_t passing_ = 0;
};

}  // namespace

gpu::DevicePlacement PlacementOf(const DeviceShare& share, const LoadedModel& model) {
  gpu::DevicePlacement placement{.home_layers = share.home_layers, .head = share.head, .hot = {}};
  if (share.beside_flash()) {
    placement.hot = share.hot;
    placement.cold_on_flash = true;
    return placement;
  }
  if (!model.weights->has_down_rows()) return placement;
  std::vector<int> all(model.config.intermediate_size);
  std::iota(all.begin(), all.end(), 0);
  placement.hot.resize(model.weights->layers.size());
  std::fill_n(placement.hot.begin(), share.home_layers, all);
  return placement;
}

bool CanPlaceEarly(const model::ModelFile& file, const ModelOptions& options,
                   const device::Device& device) {
  const bool rows = file.Find("blk.0.ffn_down_t.weight") != nullptr;
  return device.properties().unified && options.hot.placement.empty() &&
         (rows || options.ffn.down != DownInMemory::kRows);
}

Result<DeviceShare> PlaceEarly(const model::ModelFile& file, const LoadOptions& options,
                               device::Device& device, FfnPlan& plan, LoadedModel& out) {
  ASSIGN_OR_RETURN(out.weights, ReadShapes(file, options, *out.pool));
  const bool may_drop = plan.shadow_alone && options.model.ffn.audit_shadow == AuditShadow::kAuto;
  if (may_drop && !out.weights->has_down_rows()) {
    base::LogInfo(
        "no predictor is audited in the shadow: a GPU computes the layers whole, and the CPU would "
        "hold their networks once more for that");
    DropShadow(plan);
  }
  ASSIGN_OR_RETURN(const auto memory, device.FreeMemory());
  const std::size_t asked = options.model.hot.bytes;
  const std::size_t budget = asked > 0 ? std::min(asked, memory.free) : memory.free;
  auto share = EarlyPlanner(file, options, device, plan, out).Run(budget);
  if (!share.ok() && plan.shadow != FfnMode::kDense && may_drop) {
    base::LogInfo(
        "no predictor is audited in the shadow: the model does not fit into memory with it");
    DropShadow(plan);
    share = EarlyPlanner(file, options, device, plan, out).Run(budget);
  }
  const bool too_large = share.status().code() == StatusCode::kResourceExhausted;
  if (!too_large || !out.weights->has_down_rows() || !HasBundle(file, options.model)) return share;
  return EarlyPlanner(file, options, device, plan, out).RunBesideFlash(budget);
}

}  // namespace thermocline::load
