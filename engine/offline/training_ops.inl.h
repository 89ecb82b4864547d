// The one source of every table of training_ops.h. The including file defines THERMOCLINE_EIGEN,
// the namespace of Eigen there: identical names compiled with different instructions would be
// merged by the linker, and the wrong ones might run.
#define Eigen THERMOCLINE_EIGEN
#include <Eigen/Core>

#include "engine/offline/training_ops.h"

namespace thermocline::offline {
namespace {

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using View = Eigen::Map<const RowMajor>;

void Product(const ProductParams& p) {
  const View a(p.a, p.a_transposed ? p.k : p.m, p.a_transposed ? p.m : p.k);
  const View b(p.b, p.b_transposed ? p.n : p.k, p.b_transposed ? p.k : p.n);
  Eigen::Map<RowMajor> whole(p.c, p.m, p.n);
  const int rows = p.row_end - p.row_begin, cols = p.col_end - p.col_begin;
  auto c = whole.block(p.row_begin, p.col_begin, rows, cols);
  if (!p.a_transposed && p.b_transposed) {
    c.noalias() = a.middleRows(p.row_begin, rows) * b.middleRows(p.col_begin, cols).transpose();
  } else if (p.a_transposed && !p.b_transposed) {
    c.noalias() = a.middleCols(p.row_begin, rows).transpose() * b.middleCols(p.col_begin, cols);
  } else if (!p.a_transposed) {
    c.noalias() = a.middleRows(p.row_begin, rows) * b.middleCols(p.col_begin, cols);
  } else {
    c.noalias() =
        a.middleCols(p.row_begin, rows).transpose() * b.middleRows(p.col_begin, cols).transpose();
  }
}

void LogisticGradient(const LogisticParams& p) {
  Eigen::Map<Eigen::Array<float, Eigen::Dynamic, 1>> z(p.z, p.n);
  z = p.scale / (1.0F + (-z).exp());
  for (int word = 0; word * 64 < p.n; ++word) {
    for (std::uint64_t bits = p.labels[word]; bits != 0; bits &= bits - 1) {
      float& g = p.z[word * 64 + __builtin_ctzll(bits)];
      g = p.positive_weight * (g - p.scale);
    }
  }
}

void Adam(const AdamParams& p) {
  for (int i = 0; i < p.n; ++i) {
    const float g = p.gradients[i];
    p.mean[i] = p.decay * p.mean[i] + (1 - p.decay) * g;
    p.square[i] = p.square_decay * p.square[i] + (1 - p.square_decay) * g * g;
    p.weights[i] -= p.rate * p.mean[i] / (__builtin_sqrtf(p.square[i]) + p.epsilon);
  }
}

}  // namespace
}  // namespace thermocline::offline
