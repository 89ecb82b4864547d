// Turns a user's options for the feed-forward networks into modes, layouts and predictors.
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

// The modes each layer can run, and the layouts of the matrices for them.
struct FfnPlan {
  FfnModes modes;                   // automatic: chosen by measurement
  bool by_cuts = false;             // they follow the model's cuts (altup.h), not the options
  std::vector<FfnMode> candidates;  // modes to measure, beside dense and exact
  std::vector<FfnMode> also;        // further modes that every layer must be able to run
  std::optional<predictor::SideCar> side_car;
  std::string side_car_path;                               // "" = none was read
  bool sign = false, low_rank = false, threshold = false;  // predictors to load
  bool inputs = false;                                     // rules of mode inputs
  bool may_use_inputs = false;                             // if that is measured to be faster
  bool expert_rows = false;                                // neurons inside experts may be skipped
  bool expert_sign = false;                                // signs are loaded for these
  FfnMode shadow = FfnMode::kDense;  // audited in layers without loss; kDense: none
  bool shadow_alone = false;         // its predictor is for audits only, not for requests
  model::Layout gate = model::Layout::kPanels;
  model::Layout up = model::Layout::kPanels;
};

// Reads the side-car and decides. FailedPrecondition explains why a mode is unavailable: no true
// zeros, no predictor, a side-car of another model.
Result<FfnPlan> PlanFfn(const model::ModelFile& file, const FfnOptions& options);

// Removes the shadow and the predictor loaded for it. Requires: shadow_alone.
void DropShadow(FfnPlan& plan);

// True if predictions may be audited; predictors then have down_norms.
bool Audits(const FfnPlan& plan, const FfnOptions& options);

// Bytes of the plan's predictors, including those for audits.
std::size_t PredictorBytes(const model::ModelConfig& config, const FfnPlan& plan,
                           const FfnOptions& options);
// Builds the predictors of the plan.
Result<std::unique_ptr<predictor::Predictors>> LoadPredictors(const model::ModelFile& file,
                                                              const model::Weights& weights,
                                                              const FfnPlan& plan,
                                                              const FfnOptions& options,
                                                              base::WorkerPool& pool);

// The experts as separate networks; null if their down projections are column-major.
Result<std::unique_ptr<ffn::ExpertNetworks>> LoadExpertNetworks(const model::ModelConfig& config,
                                                                const model::Weights& weights,
                                                                const FfnPlan& plan,
                                                                const FfnOptions& options,
                                                                base::WorkerPool& pool);

// Checks that a layer can run `mode` with the loaded weights; the error states the reason.
Status CanRun(FfnMode mode, const model::ModelConfig& config, const model::LayerWeights& layer,
              const predictor::LayerPredictors* predictors);

}  // namespace thermocline::load
