#include "engine/load/prefetch_tuner.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "engine/base/stopwatch.h"
#include "engine/nn/multiplier.h"

namespace thermocline::load {
namespace {

constexpr int kPrefetchRounds = 3;
// The default is replaced only by a distance that is clearly faster.
constexpr double kPrefetchTimeMax = 0.97;

// Quantised matrices, until they have `limits.enough` bytes together; none if they have less than
// `limits.least`.
std::vector<const model::Linear*> LargeMatrices(const model::Weights& weights,
                                                const PrefetchLimits& limits) {
  std::vector<const model::Linear*> matrices;
  std::size_t bytes = 0;
  for (const model::LayerWeights& layer : weights.layers) {
    for (const model::Linear* linear : {&layer.q, &layer.attn_output}) {
      if (linear->weight.data == nullptr || !kernels::Traits(linear->weight.type).quantized ||
          bytes >= limits.enough)
        continue;
      matrices.push_back(linear);
      bytes += linear->weight.bytes();
    }
  }
  if (bytes < limits.least) matrices.clear();
  return matrices;
}

// Multiplies every matrix by one token.
class Products {
 public:
  Products(std::vector<const model::Linear*> matrices, const kernels::OpTable& ops,
           base::WorkerPool& pool)
      : matrices_(std::move(matrices)), multiplier_(ops, pool, 0) {
    int cols = 0, rows = 0;
    for (const model::Linear* linear : matrices_) {
      cols = std::max(cols, linear->weight.cols);
      rows = std::max(rows, linear->weight.rows);
    }
    input_.Resize(1, cols);
    out_.resize(rows);
  }
  double Seconds(int prefetch_bytes) {
    multiplier_.SetPrefetch(prefetch_bytes);
    const base::Stopwatch watch;
    for (const model::Linear* linear : matrices_) {
      const nn::Product product{linear, out_.data()};
      multiplier_.Multiply(std::span(&product, 1), input_.view(0, linear->weight.cols), 1);
    }
    return watch.Seconds();
  }

 private:
  std::vector<const model::Linear*> matrices_;
  nn::Multiplier multiplier_;
  nn::ActivationBuffer input_;
  std::vector<float> out_;
};

}  // namespace

int FastestPrefetch(const model::Weights& weights, const kernels::OpTable& ops,
                    base::WorkerPool& pool, const PrefetchLimits& limits) {
  std::vector<const model::Linear*> matrices = LargeMatrices(weights, limits);
  if (matrices.empty() || &ops == &kernels::ReferenceOps()) return kernels::kPrefetchBytes;
  Products products(std::move(matrices), ops, pool);
  double with = std::numeric_limits<double>::max(), without = with;
  for (int round = 0; round < kPrefetchRounds; ++round) {
    with = std::min(with, products.Seconds(kernels::kPrefetchBytes));
    without = std::min(without, products.Seconds(0));
  }
  return without <= kPrefetchTimeMax * with ? 0 : kernels::kPrefetchBytes;
}

}  // namespace thermocline::load
