// Runs texts through a model and records the inputs and activations of its feed-forward networks.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "engine/ffn/ffn_tap.h"
#include "engine/load/loaded_model.h"
#include "engine/offline/bit_matrix.h"
#include "tools/common/text_windows.h"

namespace thermocline::tools {

// FailedPrecondition, with an explanation, if the activation function is never exactly zero.
Status CheckTrueZeros(const load::LoadedModel& model);

// Runs every window from an empty cache, with `tap`, and with `products` if it is not null.
// `begin_window` is called before each window, `on_progress` after each with the completed share;
// both may be empty.
Status RunWindows(const load::LoadedModel& model, std::span<const Window> windows, ffn::FfnTap& tap,
                  const std::function<void()>& begin_window,
                  const std::function<void(double)>& on_progress,
                  nn::ProductTap* products = nullptr);

struct RecordOptions {
  bool before_norm = false;  // inputs are the residual before the norm
  bool magnitudes = false;   // keep |h| of every neuron
};

// One layer's tokens, in the order of the text.
struct LayerRecording {
  int layer = 0;
  int tokens = 0;                 // N
  std::vector<float> inputs;      // [N, D]
  offline::BitMatrix active;      // [N, F]
  std::vector<float> magnitudes;  // [N, F] |h|, if requested
};

// Bytes of one layer's recording.
std::size_t RecordingBytes(const model::ModelConfig& config, int tokens,
                           const RecordOptions& options);

// The number of layers whose recordings fit `memory_bytes`, at least one. The text is run once for
// each such group.
int LayersAtOnce(const model::ModelConfig& config, int tokens, const RecordOptions& options,
                 std::size_t memory_bytes);

// Runs the windows once and records `layers`, in their order.
Result<std::vector<LayerRecording>> RecordLayers(const load::LoadedModel& model,
                                                 std::span<const Window> windows,
                                                 std::span<const int> layers,
                                                 const RecordOptions& options,
                                                 const std::function<void(double)>& on_progress);

}  // namespace thermocline::tools
