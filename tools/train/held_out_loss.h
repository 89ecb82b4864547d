// The loss on held-out text, with and without the predictors in training.
#pragma once

#include <vector>

#include "engine/load/loaded_model.h"
#include "tools/common/text_windows.h"

namespace thermocline::tools {

class HeldOutLoss {
 public:
  // Requires: the model's gate and up are in row layout. Each call changes its predictors and
  // modes.
  HeldOutLoss(load::LoadedModel& model, const std::vector<Window>& windows);

  // Mean loss per token in nats, in the dense mode. Errors as Transformer::Forward.
  Result<double> Dense();
  // The same as decoding computes it, with the low-rank predictors of `side_car` in one layer, or
  // in all that it has (layer = -1).
  Result<double> Predicted(const predictor::SideCar& side_car, int layer = -1);

 private:
  Result<double> Measure(const std::vector<FfnMode>& modes);

  load::LoadedModel& model_;
  const std::vector<Window>& windows_;
};

}  // namespace thermocline::tools
