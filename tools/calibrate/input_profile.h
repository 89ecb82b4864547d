// Records the sizes of every matrix's inputs on a text. The thresholds of mode inputs come from it.
#pragma once

#include <array>
#include <vector>

#include "engine/base/index.h"
#include "engine/ffn/ffn_tap.h"
#include "engine/load/loaded_model.h"

namespace thermocline::tools {

// The size of an input: its own, or its own times the norm of its weights. Source: TEAL (Liu et al.
// 2024); WINA (Chen et al. 2025).
enum class InputSize { kOwn, kByNorm };

// For each layer and kind of input, counts and squares of sizes, in bins of a sixteenth of an
// octave.
class InputProfile final : public ffn::FfnTap, public nn::ProductTap {
 public:
  InputProfile(const load::LoadedModel& model, InputSize size);

  void OnLayer(const ffn::FfnSample& sample) override;
  void OnProduct(const kernels::PackedMatrix& weight, const float* x, int tokens) override;

  // [inputs], or empty if the size is the input's own.
  const std::vector<float>& weights(int layer, model::InputKind kind) const {
    return Of(layer, kind).weights;
  }
  // The threshold below which a share of the inputs lies.
  float ThresholdFor(int layer, model::InputKind kind, double share) const;
  // The share of the sizes' squares below it.
  double SquaresBelow(int layer, model::InputKind kind, double share) const;

 private:
  static constexpr int kBins = 640, kBinsOfOctave = 16, kLeastOctave = -24;
  struct Sizes {
    std::vector<float> weights;
    std::array<double, kBins> counts{}, squares{};
  };
  const Sizes& Of(int layer, model::InputKind kind) const {
    return sizes_[layer][base::Index(kind)];
  }
  static void Add(Sizes& to, const float* x, int inputs, int tokens);

  const load::LoadedModel& model_;
  std::vector<std::array<Sizes, model::kInputKinds>> sizes_;  // [L]
};

}  // namespace thermocline::tools
