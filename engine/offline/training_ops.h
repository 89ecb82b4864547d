// The arithmetic of training, as a table of functions for each instruction set.
//
// Eigen does the multiplications. It is compiled once for each set, in a separate namespace, and
// the widest set of the processor is chosen at run time. Measured on one Zen 4 core, 256 x 11008 x
// 512 and three other shapes: 30 to 38 GFLOP/s with the instructions of every x86-64, 81 to 97 with
// AVX2, 90 to 100 with AVX-512.
#pragma once

#include <cstdint>

namespace thermocline::offline {

// C[rows, cols] = A B, all row-major f32. A is [m, k], or [k, m] if transposed; B is [k, n], or
// [n, k] if transposed.
struct ProductParams {
  const float* a = nullptr;
  const float* b = nullptr;
  float* c = nullptr;  // [m, n]
  int m = 0, n = 0, k = 0;
  bool a_transposed = false, b_transposed = false;
  int row_begin = 0, row_end = 0;  // the part of C to compute
  int col_begin = 0, col_end = 0;
};

// One row's gradient of the logistic loss: g = w (sigmoid(z) - y) * scale with w =
// `positive_weight` if y = 1, otherwise 1. In place.
struct LogisticParams {
  float* z = nullptr;                     // [n] logits; gradients on return
  const std::uint64_t* labels = nullptr;  // [n] bits, padded to words with zeros
  int n = 0;
  float positive_weight = 1, scale = 1;
};

// Adam (Kingma and Ba 2015) on n weights. `rate` holds the correction of both means.
struct AdamParams {
  float* weights = nullptr;
  const float* gradients = nullptr;
  float* mean = nullptr;
  float* square = nullptr;
  int n = 0;
  float rate = 0, decay = 0.9F, square_decay = 0.999F, epsilon = 1e-8F;
};

struct TrainingOps {
  const char* name;  // "base", "avx2", "avx512"
  void (*product)(const ProductParams&);
  void (*logistic_gradient)(const LogisticParams&);
  void (*adam)(const AdamParams&);
};

// Every table this processor can run, fastest first.
struct TrainingTables {
  const TrainingOps* tables[3];
  int count;
};
const TrainingTables& AllTrainingOps();
inline const TrainingOps& BestTrainingOps() { return *AllTrainingOps().tables[0]; }

}  // namespace thermocline::offline
