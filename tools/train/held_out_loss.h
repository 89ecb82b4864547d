// Perplexity of held-out text with and without the predictors that are being trained.
#pragma once

#include <vector>

#include "engine/load/loaded_model.h"
#include "tools/common/text_windows.h"

namespace thermocline::tools {

class HeldOutLoss {
 public:
  // The model's gate and up are laid out in rows; its predictors and modes are those of the last
  // call.
  HeldOutLoss(load::LoadedModel& model, const std::vector<Window>& windows);

  // Mean loss of a token, nats, without loss. Errors as Transformer::Forward.
  Result<double> Dense();
  // As decoding computes it, with the low-rank predictors of `side_car` in one layer, or in all
  // that it has (layer = -1).
  Result<double> Predicted(const predictor::SideCar& side_car, int layer = -1);

 private:
  Result<double> Measure(const std::vector<FfnMode>& modes);

  load::LoadedModel& model_;
  const std::vector<Window>& windows_;
};

}  // namespace thermocline::tools
