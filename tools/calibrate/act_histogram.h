// Measures the share of a layer's output that its small activations carry. Mode `threshold` is
// calibrated by it.
#pragma once

#include <vector>

#include "engine/ffn/ffn_tap.h"
#include "engine/load/loaded_model.h"

namespace thermocline::tools {

// For each layer, neurons and mass |h| ||d|| by |act(gate)|, in bins of a ninth of an octave.
class ActHistogram : public ffn::FfnTap {
 public:
  explicit ActHistogram(const load::LoadedModel& model);

  void OnLayer(const ffn::FfnSample& sample) override;

  // The largest threshold below which at most 1 - `kept_mass` of the mass lies.
  float ThresholdFor(int layer, double kept_mass) const;
  struct Kept {
    double mass, neurons;  // shares at or above the threshold
  };
  Kept KeptAt(int layer, float threshold) const;

 private:
  struct Bin {
    double mass = 0, neurons = 0;
  };
  static int BinOf(float act);
  static float LeastOf(int bin);

  const load::LoadedModel& model_;
  std::vector<std::vector<float>> norms_;  // [L][F]
  std::vector<std::vector<Bin>> bins_;     // [L]
  std::vector<float> act_;                 // [F]
};

}  // namespace thermocline::tools
