// Trains the low-rank predictor of a layer, which predicts the neurons that a token will activate.
//
// logits = fc2 relu(fc1 x), logistic loss with heavier positives, Adam on mini-batches. After each
// epoch the threshold is the highest at which the held-out tokens keep the required recall; a
// predictor is judged by the share of neurons it then predicts, and training ends when that no
// longer falls. The rank begins at a guess from the layer's sparsity and is halved while the share
// stays below the limit, or doubled while it does not: layers whose activations are sparse or
// skewed need only low ranks.
// Source: Deja Vu (Liu et al. 2023); PowerInfer, section 5.1.
#pragma once

#include <functional>

#include "engine/base/status.h"
#include "engine/base/worker_pool.h"
#include "engine/offline/low_rank_network.h"
#include "engine/predictor/side_car.h"

namespace thermocline::offline {

// Reported after each epoch. `share_done` estimates the finished share of the layer's work and
// never falls.
struct TrainingProgress {
  int rank = 0, epoch = 0;
  double recall = 0, predicted_share = 0;  // of the epoch, on held-out tokens
  double share_done = 0;
};

struct TrainingOptions {
  double recall = 0.95;      // minimum, of held-out active neurons
  double share_limit = 2;    // limit on predicted share over active share for a rank
  int rank = 0;              // 0 = adaptive
  bool before_norm = false;  // the kind of inputs; only recorded in the result
  int epochs_max = 24, patience = 4, batch_tokens = 128;
  float learning_rate = 2.5F;  // initial rate for a unit with one input; follows a cosine
  double positive_weight = 0;  // 0 = derived from the active share
  std::uint64_t seed = 1;
  std::function<void(const TrainingProgress&)> on_progress = {};
};

// Recall and predicted share as measured on `held_out` with the weights as stored. InvalidArgument:
// no tokens, no active neuron in one of the two, sizes that do not match. FailedPrecondition:
// weights that are not finite, as from infinite inputs.
Result<predictor::LowRankPredictor> TrainLowRank(const TrainingData& train,
                                                 const TrainingData& held_out,
                                                 const TrainingOptions& options,
                                                 base::WorkerPool& pool);

// A predictor's quality on tokens at its own threshold.
struct PredictorQuality {
  double recall = 0, predicted_share = 0, active_share = 0;
};
PredictorQuality MeasureLowRank(const predictor::LowRankPredictor& predictor,
                                const TrainingData& data, base::WorkerPool& pool);

// The initial rank of a search, and the maximum: a predictor's bytes stay below a sixth of the
// layer's gate, up and down.
int FirstRank(int hidden_size, int neurons, double active_share);
int RankMax(int hidden_size, int neurons);

}  // namespace thermocline::offline
