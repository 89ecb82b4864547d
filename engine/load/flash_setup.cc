#include "engine/load/flash_setup.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>

#include "engine/base/index.h"
#include "engine/base/log.h"
#include "engine/base/stopwatch.h"
#include "engine/store/device_probe.h"

namespace thermocline::load {
namespace {

using model::Layout;

// Below this size a device's own cache dominates, and two seconds of measuring do not pay off.
constexpr std::uint64_t kProbedBytesMin = std::uint64_t{64} << 20;
constexpr int kDepthMin = 16;

Status OtherTypes(std::size_t layer, const std::string& path) {
  return base::FailedPrecondition(path, ": layer ", layer,
                                  " of the model has matrices of other types than the bundle "
                                  "file; pack it again");
}

Status CheckExpertTypes(const store::NeuronLayout& layout, const model::ExpertWeights& experts,
                        std::size_t layer, const std::string& path) {
  if (experts.down_rows.rows > 0)
    return base::FailedPrecondition(
        "layer ", layer,
        ": the experts' down projections lie along rows, and from flash come whole "
        "experts along columns; `thermocline convert --down columns` makes such a file");
  const bool same = experts.up.weight.type == layout.up_type &&
                    experts.down.weight.type == layout.down_type &&
                    (experts.gate.weight.rows > 0) == layout.gated &&
                    (!layout.gated || experts.gate.weight.type == layout.gate_type);
  return same || !experts.any() ? OkStatus() : OtherTypes(layer, path);
}

Status CheckTypes(const store::BundleIndex& index, const model::Weights& weights,
                  const std::string& path) {
  const store::NeuronLayout& layout = index.layout;
  for (std::size_t l = 0; l < weights.layers.size(); ++l) {
    const model::LayerWeights& w = weights.layers[l];
    if (layout.of_experts()) {
      RETURN_IF_ERROR(CheckExpertTypes(layout, w.experts, l, path));
      continue;
    }
    const bool gated = w.gate.linear.weight.rows > 0;
    const bool same = gated == layout.gated && w.up.linear.weight.type == layout.up_type &&
                      w.down_rows.type == layout.down_type && w.down_rows.rows > 0 &&
                      (!gated || w.gate.linear.weight.type == layout.gate_type);
    if (!same) return OtherTypes(l, path);
  }
  return OkStatus();
}

// Points the matrices' rows to the store's memory.
void Wire(const store::NeuronStore& store, bool deciding_held, model::Weights& weights) {
  for (int l = 0; l < base::IntSize(weights.layers); ++l) {
    model::LayerWeights& w = weights.layers[l];
    const auto* where = store.where(l);
    const bool gated = w.gate.linear.weight.rows > 0;
    if (gated && !deciding_held) w.gate.where = where;
    if (gated || !deciding_held) {
      w.up.where = where;
      w.up.ahead = store.up_ahead();
    }
    w.down_rows.where = where;
    w.down_rows.ahead = store.down_ahead();
  }
}

std::string PathOfBundle(const model::ModelFile& file, const LoadOptions& options) {
  return options.model.memory.bundle.empty() ? store::BundlePath(file.path)
                                             : options.model.memory.bundle;
}

// Whole layers on flash require mode dense: no rows can be selected.
Status CheckDense(const FfnPlan& plan) {
  const auto& modes = plan.modes.layers;
  const bool dense =
      std::all_of(modes.begin(), modes.end(), [](FfnMode m) { return m == FfnMode::kDense; });
  if (dense && plan.also.empty() && plan.up == Layout::kPanels && plan.gate == Layout::kPanels)
    return OkStatus();
  return base::FailedPrecondition(
      "the bundle file holds whole layers, which are computed in mode dense alone; give more "
      "memory "
      "for other modes");
}

// The largest gap between two bundles for which one read is not slower than two.
std::uint32_t LargestGap(const store::Curve& curve, std::size_t bundle_bytes) {
  constexpr std::uint32_t kStep = 1 << 10, kMax = 64 << 10;
  const auto each = static_cast<double>(bundle_bytes);
  std::uint32_t gap = 0;
  while (gap < kMax && curve.ReadTime(2 * each + gap + kStep) <= 2 * curve.ReadTime(each))
    gap += kStep;
  return gap;
}

Status OpenNeurons(store::BundleIndex bundle, const std::optional<store::Curve>& curve,
                   std::unique_ptr<store::BlockReader> reader, LoadedModel& out) {
  const MemoryPlan& memory = out.memory;
  RETURN_IF_ERROR(CheckTypes(bundle, *out.weights, reader->path()));
  store::BundleQueue::Options queue{.rest_only = memory.deciding_held,
                                    .read_bytes_max = memory.read_bytes,
                                    .bundled = out.ablation.bundling};
  if (curve.has_value()) {
    queue.gap_bytes_max =
        LargestGap(*curve, store::NeuronStore::SlotBytes(bundle.layout, memory.deciding_held));
  }
  const double half_life = bundle.layout.of_experts() ? store::kExpertHalfLife : store::kHalfLife;
  ASSIGN_OR_RETURN(out.flash, store::NeuronStore::Create(std::move(bundle), std::move(reader),
                                                         {.queue = queue,
                                                          .slots = memory.slots,
                                                          .stages = memory.stages,
                                                          .half_life = half_life}));
  // Experts are looked up in the store instead.
  if (!out.config.experts.any()) Wire(*out.flash, memory.deciding_held, *out.weights);
  return OkStatus();
}

Status OpenLayers(store::BundleIndex bundle, std::unique_ptr<store::BlockReader> reader,
                  LoadedModel& out) {
  base::HugeBuffer& memory = out.weights->memory;
  std::vector<store::LayerStream::Layer> layers;
  std::size_t begin = memory.size(), end = 0;
  for (const model::Weights::Image& image : out.weights->images) {
    store::LayerStream::Layer layer{.stage = image.stage};
    if (layer.stage >= 0) {
      layer.image = {memory.data() + image.begin, bundle.image_bytes};
      begin = std::min(begin, image.begin);
      end = std::max(end, image.begin + layer.image.size());
    }
    layers.push_back(layer);
  }
  if (end > memory.size()) {
    return base::FailedPrecondition(reader->path(),
                                    ": its layers are larger than the model's; pack it again");
  }
  ASSIGN_OR_RETURN(out.stream, store::LayerStream::Create(std::move(bundle), std::move(reader),
                                                          std::move(layers),
                                                          {memory.data() + begin, end - begin}));
  return OkStatus();
}

}  // namespace

Status LoadHeldWeights(const model::ModelFile& file, const LoadOptions& options,
                       const DeviceShare* device, FfnPlan& plan, LoadedModel& out) {
  const base::Stopwatch watch;
  const MemoryPlan& memory = out.memory;
  model::LoadWeightsOptions load{.verify = options.model.verify,
                                 .quantize_head = options.model.quantize_head,
                                 .on_progress = options.on_progress,
                                 .cancelled = options.cancelled};
  if (memory.tier != MemoryPlan::Tier::kMemory || device != nullptr) {
    base::LogInfo("memory, of ", base::HumanBytes(memory.budget), ":");
    std::istringstream table(memory.Table());  // a log message is one line
    for (std::string line; std::getline(table, line);) base::LogInfo("memory: ", line);
  }
  if (memory.tier == MemoryPlan::Tier::kLayers) {
    if (plan.by_cuts) {
      plan.modes.layers.assign(plan.modes.layers.size(), FfnMode::kDense);
      plan.up = Layout::kPanels;
    }
    RETURN_IF_ERROR(CheckDense(plan));
    load.stage = [&](int layer) { return memory.stage_of[layer]; };
  }
  if (memory.tier == MemoryPlan::Tier::kNeurons && !file.config.experts.any()) {
    if (!memory.deciding_held) plan.gate = plan.up = Layout::kRows;
    if (file.config.architecture->gated) plan.up = Layout::kRows;
  }
  model::LayerParts wanted;
  if (memory.tier == MemoryPlan::Tier::kNeurons)
    wanted = {.attention = true, .deciding = memory.deciding_held, .rest = false};
  load.parts = [device, wanted](int layer) {
    return device != nullptr ? device->HostParts(layer, wanted) : wanted;
  };
  load.shared.head = device == nullptr || !device->head;
  load.gate = plan.gate;
  load.up = plan.up;
  ASSIGN_OR_RETURN(out.weights, model::LoadWeights(file, *out.pool, load));
  const double seconds = watch.Seconds();
  base::LogInfo("weights: ", base::HumanBytes(out.weights->memory.size()), " in memory after ",
                std::round(100 * seconds) / 100, " s, read ",
                out.weights_read == "direct" ? "around" : "by way of", " the page cache");
  return OkStatus();
}

Status OpenFlash(const model::ModelFile& file, const LoadOptions& options,
                 store::BundleIndex bundle, LoadedModel& out) {
  const std::string path = PathOfBundle(file, options);
  store::ReaderOptions reading{.depth = out.memory.reads};
  std::optional<store::Curve> curve;
  if (bundle.file_bytes >= kProbedBytesMin) {
    ASSIGN_OR_RETURN(curve, store::DeviceCurve(path, {}));
    // More would only make each read wait longer. Whole layers are read in the background: all of
    // one at once.
    if (out.memory.tier == MemoryPlan::Tier::kNeurons) {
      reading.depth =
          std::clamp(curve->BestDepth(static_cast<double>(bundle.layout.bundle_bytes())),
                     std::min(kDepthMin, out.memory.reads), out.memory.reads);
    }
  }
  const auto& open = options.open_reader;
  ASSIGN_OR_RETURN(auto reader, open ? open(path, reading) : store::OpenBlockReader(path, reading));
  if (out.memory.tier == MemoryPlan::Tier::kLayers)
    return OpenLayers(std::move(bundle), std::move(reader), out);
  return OpenNeurons(std::move(bundle), curve, std::move(reader), out);
}

}  // namespace thermocline::load
