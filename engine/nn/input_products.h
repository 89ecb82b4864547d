// Products that read only the weights of large inputs: y = sum of x_j W[:, j] over the j whose
// magnitude reaches a threshold. The others count as zero.
//
// With input-major weights, where the weights of one input are contiguous, the other weights are
// not read. With the usual layout zeros are multiplied: the same loss, without the gain.
//
// Source: TEAL (Liu et al. 2024) for thresholds of inputs by magnitude; WINA (Chen et al. 2025) for
// magnitudes weighted by the norms of the weight columns.
#pragma once

#include <span>
#include <vector>

#include "engine/model/weights/input_major.h"
#include "engine/nn/multiplier.h"

namespace thermocline::nn {

// Input j counts if |x_j| * weights[j] >= threshold.
struct InputRule {
  float threshold = 0;
  std::span<const float> weights = {};  // [cols]; empty: 1 each
};

// The inputs that counted, and the total.
struct InputCounts {
  std::int64_t tokens = 0, kept = 0, all = 0;
  double missed = 0;  // by token, the share of the sum of squares that was left out
  // Steps, and the bytes and multiply-adds of the inputs that counted.
  std::int64_t steps = 0, bytes = 0, operations = 0;

  InputCounts& operator+=(const InputCounts& other) {
    tokens += other.tokens;
    kept += other.kept;
    all += other.all;
    missed += other.missed;
    steps += other.steps;
    bytes += other.bytes;
    operations += other.operations;
    return *this;
  }
};

// Decode thread only. Borrows all its parameters; allocates nothing after construction.
class InputProducts {
 public:
  struct Params {
    const kernels::OpTable& ops;
    base::WorkerPool& pool;
    Multiplier& multiplier;
    int tokens_max;  // T
    int cols_max;    // inputs of a matrix
    int rows_max;    // outputs of all products together
  };
  explicit InputProducts(const Params& params);
  // Bytes that a construction with these sizes allocates.
  static std::size_t Bytes(int tokens_max, int cols_max, int rows_max, int threads);

  // Computes the products' outputs from x [T, cols], biases added. `copy`: their input-major
  // weights side by side; null: the products' own weights are multiplied. A token has the same bits
  // in a batch as alone.
  InputCounts Multiply(std::span<const Product> products, const model::InputMatrix* copy,
                       const InputRule& rule, const float* x, int tokens);

 private:
  // Copies the inputs that count for a token to masked_ [cols] from element `at` on, and to ids_
  // and values_. Returns the share of the sum of squares that is left out.
  double Keep(const InputRule& rule, const float* x, int cols, std::ptrdiff_t at);
  void MultiplyMasked(std::span<const Product> products, int cols, int tokens);
  // joined_ = the sum over ids_.
  void Sum(const model::InputMatrix& copy);
  void FinishSum(const model::InputMatrix& copy);
  // Copies joined_ to token `token` of the products' outputs.
  void Separate(std::span<const Product> products, int token);

  const kernels::OpTable& ops_;
  base::WorkerPool& pool_;
  Multiplier& multiplier_;
  ActivationBuffer masked_;    // [T, cols]
  std::vector<int> ids_;       // of a token, ascending
  std::vector<float> values_;  // [ids]
  std::vector<float> limits_;  // [outputs / 32]
  std::vector<float> joined_;  // [outputs]
  // Each thread's part of the sum, and the buffers that sum_inputs needs.
  struct Part {
    std::vector<std::int32_t> high, low;  // [outputs]
    std::vector<std::uint8_t> scratch;
  };
  std::vector<Part> parts_;
};

}  // namespace thermocline::nn
