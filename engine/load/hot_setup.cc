#include "engine/load/hot_setup.h"

#include <algorithm>

#include "engine/base/log.h"
#include "engine/load/early_placement.h"
#include "engine/load/hot_plan.h"
#include "engine/load/this_machine.h"

namespace thermocline::load {
namespace {

// Returns an error if a model's neurons cannot be split between two sides.
Status CheckCanSplit(const LoadedModel& m) {
  RETURN_IF_ERROR(model::RequireNetworks(m.config, StrCat(m.path, ": the hot tier")));
  if (m.memory.tier == MemoryPlan::Tier::kLayers) {
    return base::FailedPrecondition(
        m.path,
        ": whole layers come from flash, and a hot tier takes single neurons; give more "
        "memory, or leave out the hot tier");
  }
  if (!m.weights->has_down_rows()) {
    return base::FailedPrecondition(
        m.path,
        ": the down projection is not neuron-major, so its neurons cannot lie in two places; "
        "`thermocline convert --down rows` makes a file where they can");
  }
  return OkStatus();
}

// Without neuron-major rows a GPU computes its layers densely, so thresholds have no effect there.
Status CheckCanControl(const LoadedModel& m, const FfnOptions& ffn) {
  if (ffn.controller_recall == 0 || m.weights->has_down_rows() || !m.audits()) return OkStatus();
  return base::FailedPrecondition(
      m.path,
      ": engine.controller_recall: the down projection is not neuron-major, so a GPU computes its "
      "layers whole, and there is no recall to hold; `thermocline convert --down rows` makes a "
      "file whose neurons are predicted there, too");
}

void Report(const HotChoice& choice, LoadedModel& out) {
  for (const std::vector<int>& layer : choice.hot) out.hot.neurons += layer.size();
  out.hot.neurons_all = static_cast<std::int64_t>(choice.hot.size()) * out.config.units_per_layer();
  out.hot.used = true;
  out.hot.predicted_tokens_per_s = choice.tokens_per_s;
  out.hot.planned_share = choice.active_share;
}

// `moved` is set if the model may have been changed, even on error.
Status SetUpDevice(const model::ModelFile& file, const LoadOptions& options,
                   std::unique_ptr<device::Device> gpu, const DeviceShare* early, bool& moved,
                   LoadedModel& out) {
  RETURN_IF_ERROR(CheckCanControl(out, options.model.ffn));
  const DeviceSizes sizes = SizesOf(options, out);
  HotChoice choice;
  if (early != nullptr) {
    gpu::DevicePlacement placement = PlacementOf(*early, out);
    choice = {.hot = std::move(placement.hot),
              .home_layers = placement.home_layers,
              .head = placement.head};
  } else {
    ASSIGN_OR_RETURN(choice, ChooseForDevice(file, options, *gpu, sizes, out));
  }
  const std::string name = gpu->Describe();
  const Status placed = out.PlaceOnDevice(
      std::move(gpu), {.home_layers = choice.home_layers, .head = choice.head, .hot = choice.hot},
      sizes, options.on_progress);
  // If the device's memory was not enough, nothing was moved yet. After other errors rows may be
  // gone, which cannot be undone.
  moved = placed.code() != StatusCode::kResourceExhausted;
  RETURN_IF_ERROR(placed);
  Report(choice, out);
  out.hot.device = name;
  out.hot.bytes = out.device->bytes();
  const base::HugeBuffer& held = out.weights->memory;
  out.memory.given_back =
      held.size() - held.held() + (early != nullptr ? early->passing : std::size_t{0});
  base::LogInfo("GPU: ", name, "; ", choice.home_layers, " of ", out.config.num_hidden_layers,
                " layers", choice.head ? " and the head" : "", ", ", out.hot.neurons, " of ",
                out.hot.neurons_all, " neurons, ", base::HumanBytes(out.hot.bytes), "; ",
                base::HumanBytes(out.memory.given_back), " of the host's memory given back");
  return OkStatus();
}

Status SetUpPartition(const model::ModelFile& file, const LoadOptions& options, LoadedModel& out) {
  RETURN_IF_ERROR(CheckCanSplit(out));
  ASSIGN_OR_RETURN(const SideThreads threads,
                   ShareThreads(out.pool->threads(), options.model.hot.threads));
  ASSIGN_OR_RETURN(const HotChoice choice, ChooseForPartition(file, options, out));
  if (!choice.any_hot()) {
    base::LogWarning("no second partition: by the plan all neurons are faster on one side");
    return OkStatus();
  }
  Report(choice, out);
  RETURN_IF_ERROR(out.SplitNeurons(choice.hot, threads.hot));
  out.hot.bytes = out.split->hot_bytes();
  out.pool = std::make_unique<base::WorkerPool>(threads.cold);
  base::LogInfo("hot tier: ", out.hot.neurons, " of ", out.hot.neurons_all, " neurons, ",
                base::HumanBytes(out.hot.bytes), ", on ", threads.hot,
                " threads of their own; planned for ", out.hot.predicted_tokens_per_s, " tokens/s");
  return OkStatus();
}

void LogExperts(const HotChoice& choice, const LoadedModel& out, const std::string& where) {
  base::LogInfo("hot experts: ", out.hot.neurons, " of ", out.hot.neurons_all, ", ",
                base::HumanBytes(out.hot.bytes), ", ", where, "; planned for ", choice.tokens_per_s,
                " tokens/s");
}

// A hot side computes only whole experts.
Status CheckWholeExperts(const LoadedModel& model) {
  if (model.expert_networks == nullptr) return OkStatus();
  return base::FailedPrecondition(
      model.path,
      ": its experts' down projections lie along rows, and a hot tier computes whole "
      "experts; leave out --down-layout rows, or `thermocline convert --down columns`");
}

// A GPU has copies, so the host can still compute every expert.
Status SetUpExpertDevice(const model::ModelFile& file, const LoadOptions& options,
                         std::unique_ptr<device::Device> gpu, LoadedModel& out) {
  RETURN_IF_ERROR(CheckWholeExperts(out));
  if (out.config.experts.router.on_input)
    return base::FailedPrecondition(
        out.path, ": a GPU weighs experts at their output, and this family at their input");
  ASSIGN_OR_RETURN(const HotChoice choice, ChooseExperts(file, options, gpu.get(), out));
  if (!choice.any_hot())
    return base::FailedPrecondition(gpu->Describe(),
                                    ": by the plan no expert is faster there than on the CPU");
  auto hot = std::make_unique<ffn::HotExperts>(ffn::HotExperts::Params{
      .config = out.config, .weights = *out.weights, .flash = out.flash.get(), .hot = choice.hot});
  ASSIGN_OR_RETURN(out.device_experts,
                   gpu::DeviceExperts::Create({.device = *gpu,
                                               .config = out.config,
                                               .weights = *out.weights,
                                               .hot = *hot,
                                               .tokens_max = options.sizes.tokens_max}));
  out.hot_experts = std::move(hot);
  out.gpu = std::move(gpu);
  Report(choice, out);
  out.hot.device = out.gpu->Describe();
  out.hot.bytes = out.hot_experts->bytes();
  LogExperts(choice, out, out.hot.device);
  return OkStatus();
}

Status SetUpExpertPartition(const model::ModelFile& file, const LoadOptions& options,
                            LoadedModel& out) {
  RETURN_IF_ERROR(CheckWholeExperts(out));
  ASSIGN_OR_RETURN(const SideThreads threads,
                   ShareThreads(out.pool->threads(), options.model.hot.threads));
  ASSIGN_OR_RETURN(const HotChoice choice, ChooseExperts(file, options, nullptr, out));
  if (!choice.any_hot()) {
    base::LogWarning("no second partition: by the plan all experts are faster on one side");
    return OkStatus();
  }
  out.hot_experts = std::make_unique<ffn::HotExperts>(ffn::HotExperts::Params{
      .config = out.config, .weights = *out.weights, .flash = out.flash.get(), .hot = choice.hot});
  RETURN_IF_ERROR(out.hot_experts->FixAddresses());
  Report(choice, out);
  out.hot.bytes = out.hot_experts->bytes();
  out.hot_threads = threads.hot;
  out.pool = std::make_unique<base::WorkerPool>(threads.cold);
  LogExperts(choice, out, StrCat("on ", threads.hot, " threads of their own"));
  return OkStatus();
}

}  // namespace

Accelerator OpenAccelerator(const LoadOptions& options) {
  return device::Device::Open(
      {.ops = options.device_ops != nullptr ? options.device_ops : kernels::CudaOps()});
}

Status SetUpHotTier(const model::ModelFile& file, const LoadOptions& options, Accelerator gpu,
                    const DeviceShare* early, LoadedModel& out) {
  out.hot.device = "cpu";
  const HotOptions& hot = options.model.hot;
  if (hot.device != HotDevice::kCpu) {
    bool moved = false;
    Status used = gpu.status();
    if (gpu.ok() && out.config.experts.any()) {
      used = SetUpExpertDevice(file, options, *std::move(gpu), out);
    } else if (gpu.ok()) {
      used = SetUpDevice(file, options, *std::move(gpu), early, moved, out);
    }
    if (used.ok()) return OkStatus();
    if (early != nullptr) return used;  // the host does not have the whole model
    if (hot.device == HotDevice::kCuda || moved)
      return used.Annotate(StrCat("device ", HotDeviceName(hot.device)));
    out.hot = {};
    out.hot.device = "cpu";
    out.hot.fallback = used.message();
    // A user who configured its memory expects a GPU and gets a warning; others get an info
    // message.
    const bool expected = hot.bytes > 0 || !hot.placement.empty();
    if (expected) base::LogWarning("computing without a GPU: ", out.hot.fallback);
    if (!expected) base::LogInfo("computing without a GPU: ", out.hot.fallback);
    return OkStatus();
  }
  if (hot.bytes == 0 && hot.placement.empty()) return OkStatus();
  return out.config.experts.any() ? SetUpExpertPartition(file, options, out)
                                  : SetUpPartition(file, options, out);
}

}  // namespace thermocline::load
