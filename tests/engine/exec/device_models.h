// Loads models with a part on an emulated device.
#pragma once

#include "tests/cuda_emulated/emulated_ops.h"
#include "tests/engine/exec/ffn_models.h"

namespace thermocline::exec {

inline constexpr int kDeviceContext = 96;  // tokens

struct Where {
  int home_layers = 1 << 20;   // at most, of the model's layers
  bool head = true;            // if all layers are on the device
  int every = 1;               // every such neuron is hot; 0 = none
  bool cpu_layers_too = true;  // hot neurons also in layers whose home is the CPU
};

inline std::unique_ptr<device::Device> OpenEmulated() {
  auto device = device::Device::Open({.ops = &kernels::EmulatedOps(), .nodes = "/nowhere"});
  EXPECT_TRUE(device.ok()) << device.status().message();
  return device.ok() ? *std::move(device) : nullptr;
}

inline gpu::DevicePlacement PlacementOf(const load::LoadedModel& model, const Where& where) {
  const int layers = model.config.num_hidden_layers;
  gpu::DevicePlacement placement;
  placement.home_layers = std::min(layers, where.home_layers);
  placement.head = where.head && placement.home_layers == layers;
  if (!model.weights->has_down_rows()) return placement;
  placement.hot.resize(static_cast<std::size_t>(layers));
  for (int l = 0; l < layers; ++l) {
    if (l >= placement.home_layers && !where.cpu_layers_too) continue;
    for (int i = 0; where.every > 0 && i < model.config.intermediate_size; ++i) {
      if ((i * 7 + l) % where.every == 0) placement.hot[static_cast<std::size_t>(l)].push_back(i);
    }
  }
  return placement;
}

inline Status Place(load::LoadedModel& model, const Where& where, int tokens_max = 32,
                    int logits_max = 0) {
  return model.PlaceOnDevice(OpenEmulated(), PlacementOf(model, where),
                             {.tokens_max = tokens_max,
                              .context_length = kDeviceContext,
                              .logits_max = logits_max > 0 ? logits_max : tokens_max});
}

inline std::unique_ptr<load::LoadedModel> LoadPlaced(const How& how, const Where& where) {
  auto model = Load(how);
  if (model == nullptr) return nullptr;
  const Status placed = Place(*model, where);
  EXPECT_TRUE(placed.ok()) << placed.message();
  return model;
}

}  // namespace thermocline::exec
