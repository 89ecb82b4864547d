// From what a user asks of the feed-forward networks to modes, layouts and predictors.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/api/ffn_mode.h"
#include "engine/ffn/expert_networks.h"
#include "engine/model/model_file.h"
#include "engine/predictor/predictors.h"

namespace thermocline::load {

// Which modes each layer can run, and how the matrices must lie for that.
struct FfnPlan {
  FfnModes modes;                   // automatic: to be chosen by measurement
  bool by_cuts = false;             // they follow the model's cuts (altup.h): nobody asked
  std::vector<FfnMode> candidates;  // for that, beside dense and exact
  std::vector<FfnMode> also;        // that every layer must be able to run besides
  std::optional<predictor::SideCar> side_car;
  std::string side_car_path;                               // "" = none was read
  bool sign = false, low_rank = false, threshold = false;  // predictors to load
  bool inputs = false;                                     // rules of mode inputs
  bool may_use_inputs = false;                             // where that is measured to be faster
  bool expert_rows = false;                                // neurons inside experts may be skipped
  bool expert_sign = false;                                // signs are loaded for them
  FfnMode shadow = FfnMode::kDense;  // audited where layers are computed without loss; kDense: none
  bool shadow_alone = false;         // its predictor is loaded for that, and no request may use it
  model::Layout gate = model::Layout::kPanels;
  model::Layout up = model::Layout::kPanels;
};

// Reads the side-car and decides. FailedPrecondition explains why a mode cannot be: no true zeros,
// no predictor, a side-car of another model.
Result<FfnPlan> PlanFfn(const model::ModelFile& file, const FfnOptions& options);

// Without the shadow, and the predictor that is loaded for it. Requires: shadow_alone.
void DropShadow(FfnPlan& plan);

// True if predictions may be audited: then predictors have down_norms.
bool Audits(const FfnPlan& plan, const FfnOptions& options);

// Bytes that the predictors of the plan will take, audits with them.
std::size_t PredictorBytes(const model::ModelConfig& config, const FfnPlan& plan,
                           const FfnOptions& options);
// Builds the predictors of the plan.
Result<std::unique_ptr<predictor::Predictors>> LoadPredictors(const model::ModelFile& file,
                                                              const model::Weights& weights,
                                                              const FfnPlan& plan,
                                                              const FfnOptions& options,
                                                              base::WorkerPool& pool);

// The experts as networks of their own; null: their down projections lie along columns.
Result<std::unique_ptr<ffn::ExpertNetworks>> LoadExpertNetworks(const model::ModelConfig& config,
                                                                const model::Weights& weights,
                                                                const FfnPlan& plan,
                                                                const FfnOptions& options,
                                                                base::WorkerPool& pool);

// Checks that a layer can run `mode` with the loaded weights; the error is the reason.
Status CanRun(FfnMode mode, const model::ModelConfig& config, const model::LayerWeights& layer,
              const predictor::LayerPredictors* predictors);

}  // namespace thermocline::load
