// The arguments of a layer's network for one step.
#pragma once

#include "engine/api/ffn_mode.h"
#include "engine/nn/workspace.h"

namespace thermocline::ffn {

inline bool Predicts(FfnMode mode) { return mode == FfnMode::kSign || mode == FfnMode::kLowRank; }

// Tokens of one step that may be predicted; more are computed exactly.
inline constexpr int kSparseTokensMax = 16;

// Decides which neurons of a layer are live, beside the predictors: changes between tokens.
struct FfnPolicy {
  FfnMode mode = FfnMode::kDense;
  // Added to what the predictor must reach: units of the sign score, of the low-rank logit, or of
  // |act(gate)|. Above zero reads less and misses more.
  float shift = 0;
  // Neurons that are not in memory are left out: for drafts.
  bool resident_only = false;
  int input_point = -1;  // mode inputs: of predictor::Predictors::input_points; -1: as loaded
};

struct FfnInput {
  const nn::ActivationBuffer& hidden;  // [T, D] normed
  const float* residual;               // [T, D] before the norm
  int tokens;                          // T
  bool decoded = false;                // some of them are of answers: then what is read is counted
};

struct FfnStep {
  int layer;
  FfnInput input;
  FfnPolicy policy;
  int slot = 0;  // of the steps that are prepared at the same time (candidate_finder.h)
  const float* gates = nullptr;  // [T, F] of a layer with a cut (gate_cut.h), cut; else null
};

}  // namespace thermocline::ffn
