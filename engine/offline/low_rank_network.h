// The trained network, logits = fc2 relu(fc1 x), with its gradients and Adam's state.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/index.h"
#include "engine/base/ratio.h"
#include "engine/base/worker_pool.h"
#include "engine/offline/aligned_floats.h"
#include "engine/offline/bit_matrix.h"
#include "engine/offline/training_ops.h"

namespace thermocline::offline {

// One layer's tokens. Borrowed.
struct TrainingData {
  std::span<const float> inputs;      // [N, D] f32
  const BitMatrix* labels = nullptr;  // [N, F], set = active
  int hidden_size = 0;                // D

  int tokens() const { return labels->rows(); }   // N
  int neurons() const { return labels->cols(); }  // F
  double active_share() const {
    return base::Ratio(labels->Count(), base::Area(tokens(), neurons()));
  }
};

// Computes the product of `p`, divided into the same tiles for any number of threads.
void MultiplyTiled(const TrainingOps& ops, base::WorkerPool& pool, ProductParams p);

// Thread-compatible; its products run on the pool. The same data and seed give the same bits at any
// number of threads.
class LowRankNetwork {
 public:
  struct Params {
    int hidden_size = 0;  // D
    int neurons = 0;      // F
    const TrainingOps& ops;
    base::WorkerPool& pool;
    std::uint64_t seed = 1;
  };
  explicit LowRankNetwork(const Params& params);

  int rank() const { return rank_; }
  // Starts over with `rank` random units whose output weights are zero.
  void Reset(int rank);
  // One step on T tokens `x` [T, D] with the labels' rows `tokens` [T].
  struct Step {
    std::span<const float> x;
    const BitMatrix& labels;
    std::span<const int> tokens;
    float positive_weight = 1, learning_rate = 1;  // the rate for a unit with one input
  };
  void Train(const Step& step);

  // Logits [T, F] of `x` [T, D], valid until the next call.
  std::span<const float> Logits(std::span<const float> x, int tokens);

  std::span<const float> fc1() const { return fc1_.values; }
  std::span<const float> fc2() const { return fc2_.values; }
  // The shapes must be the current ones.
  void SetWeights(std::span<const float> fc1, std::span<const float> fc2);

 private:
  struct Matrix {
    AlignedFloats values, gradients, mean, square;
    void Reset(std::size_t n);  // zeros
  };
  void Forward(const float* x, int tokens);
  void Update(Matrix& matrix, float learning_rate);
  float Uniform();  // [-1, 1)

  const int hidden_size_, neurons_;
  const TrainingOps& ops_;
  base::WorkerPool& pool_;
  std::uint64_t random_;
  int rank_ = 0;
  int steps_ = 0;                                    // of Adam, since the last Reset
  Matrix fc1_, fc2_;                                 // [R, D], [F, R]
  AlignedFloats hidden_, hidden_gradient_, logits_;  // [T, R], [T, R], [T, F]
};

}  // namespace thermocline::offline
