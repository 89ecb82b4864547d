// The arguments of a layer's network for one step.
#pragma once

#include "engine/api/ffn_mode.h"
#include "engine/nn/workspace.h"

namespace thermocline::ffn {

inline bool Predicts(FfnMode mode) { return mode == FfnMode::kSign || mode == FfnMode::kLowRank; }

// Maximum tokens of a step that may be predicted; larger steps are computed exactly.
inline constexpr int kSparseTokensMax = 16;

// Decides, beside the predictors, which neurons of a layer are live; may change between tokens.
struct FfnPolicy {
  FfnMode mode = FfnMode::kDense;
  // Added to the predictor's threshold: units of the sign score, of the low-rank logit, or of
  // |act(gate)|. Above zero less is read and more missed.
  float shift = 0;
  // Skips neurons that are not in memory: for drafts.
  bool resident_only = false;
  int input_point = -1;  // mode inputs: of predictor::Predictors::input_points; -1: as loaded
};

struct FfnInput {
  const nn::ActivationBuffer& hidden;  // [T, D] normed
  const float* residual;               // [T, D] before the norm
  int tokens;                          // T
  bool decoded = false;                // some tokens belong to answers: then reads are counted
};

struct FfnStep {
  int layer;
  FfnInput input;
  FfnPolicy policy;
  int slot = 0;  // index among the steps prepared at the same time (candidate_finder.h)
  const float* gates = nullptr;  // [T, F] cut gates if the layer has a cut (gate_cut.h), else null
};

}  // namespace thermocline::ffn
