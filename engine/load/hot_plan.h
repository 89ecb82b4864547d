// Which neurons and layers a hot side gets: planned, or read from a placement file.
#pragma once

#include "engine/load/loaded_model.h"

namespace thermocline::load {

struct Chosen {
  ffn::NeuronIds hot;
  double tokens_per_s = 0;  // 0: a file does not say
  double active_share = 0;  // of what is active that is hot, by the profile; 0: none
  int home_layers = 0;      // at home on a device
  bool head = false;        // on a device

  bool any_hot() const {
    return std::any_of(hot.begin(), hot.end(), [](const auto& layer) { return !layer.empty(); });
  }
  // True if some of the model's neurons are not hot; F = `neurons`.
  bool shares(int neurons) const {
    return std::any_of(hot.begin(), hot.end(),
                       [neurons](const auto& layer) { return base::IntSize(layer) < neurons; });
  }
};

// [L][F] of each layer the neurons by falling use, as the side-car beside the model counted it
// (`side_car`: "" = there), or as they come.
Result<std::vector<std::vector<int>>> NeuronsByUse(const model::ModelFile& file,
                                                   const std::string& side_car);

// The sizes that a device's memory will be shared out for.
DeviceSizes SizesOf(const LoadOptions& options, const LoadedModel& model);
// ResourceExhausted: the least takes `bytes`, and `budget` may be used.
Status NoRoom(const LoadedModel& model, std::size_t bytes, std::int64_t budget);

// For a device, by what it can do; gives up a shadow in `out` that nobody asked for by name, where
// more neurons could have its room. FailedPrecondition if the device would make no token faster.
Result<Chosen> ChooseForDevice(const model::ModelFile& file, const LoadOptions& options,
                               device::Device& gpu, const DeviceSizes& sizes, LoadedModel& out);

// Chooses a mixture's experts for `device`, or for a second partition of the CPU (null).
// ResourceExhausted if a GPU has no room for one.
Result<Chosen> ChooseExperts(const model::ModelFile& file, const LoadOptions& options,
                             device::Device* device, const LoadedModel& model);

// For a second partition of the CPU.
Result<Chosen> ChooseForPartition(const model::ModelFile& file, const LoadOptions& options,
                                  const LoadedModel& model);

}  // namespace thermocline::load
