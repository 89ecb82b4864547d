// Chooses the neurons and layers of the hot side: planned, or read from a placement file.
#pragma once

#include "engine/load/loaded_model.h"

namespace thermocline::load {

struct HotChoice {
  ffn::NeuronIds hot;
  double tokens_per_s = 0;  // 0: the placement file does not state it
  double active_share = 0;  // hot share of the active neurons, by the profile; 0: unknown
  int home_layers = 0;      // computed on the device
  bool head = false;        // computed on the device

  bool any_hot() const {
    return std::any_of(hot.begin(), hot.end(), [](const auto& layer) { return !layer.empty(); });
  }
  // True if some of the model's neurons are not hot; F = `neurons`.
  bool shares(int neurons) const {
    return std::any_of(hot.begin(), hot.end(),
                       [neurons](const auto& layer) { return base::IntSize(layer) < neurons; });
  }
};

// [L][F] the neurons of each layer by descending use, as counted in the side-car beside the model
// (`side_car`: "" = the default path), or in the file's order.
Result<std::vector<std::vector<int>>> NeuronsByFrequency(const model::ModelFile& file,
                                                         const std::string& side_car);

// The sizes that determine a device's memory.
DeviceSizes SizesOf(const LoadOptions& options, const LoadedModel& model);
// ResourceExhausted: the smallest part needs `bytes`, and `budget` may be used.
Status NoRoom(const LoadedModel& model, std::size_t bytes, std::int64_t budget);

// For a device, by its capabilities. Drops a shadow in `out` that was not requested by name if its
// memory could hold more neurons. FailedPrecondition if the device would not make tokens faster.
Result<HotChoice> ChooseForDevice(const model::ModelFile& file, const LoadOptions& options,
                                  device::Device& gpu, const DeviceSizes& sizes, LoadedModel& out);

// Chooses a mixture's experts for `device`, or for a second partition of the CPU (null).
// ResourceExhausted if a GPU cannot hold a single one.
Result<HotChoice> ChooseExperts(const model::ModelFile& file, const LoadOptions& options,
                                device::Device* device, const LoadedModel& model);

// For a second partition of the CPU.
Result<HotChoice> ChooseForPartition(const model::ModelFile& file, const LoadOptions& options,
                                     const LoadedModel& model);

}  // namespace thermocline::load
