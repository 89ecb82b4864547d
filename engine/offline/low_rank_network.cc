#include "engine/offline/low_rank_network.h"

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"
#include "engine/base/index.h"

namespace thermocline::offline {
namespace {

constexpr int kTile = 256;             // rows and columns of a product's tile
constexpr int kUpdateChunk = 1 << 16;  // weights in a work item of Adam
// Adam moves every weight by about its rate, so a unit's sum moves by the rate times its inputs:
// rates are scaled by 1 / inputs, because wide layers would diverge otherwise. fc2's inputs are
// fewer and larger.
// Source: Yang et al. 2022, Tensor Programs V.
constexpr float kOutputRate = 0.25F;

}  // namespace

void MultiplyTiled(const TrainingOps& ops, base::WorkerPool& pool, ProductParams p) {
  const int tile_rows = (p.m + kTile - 1) / kTile, tile_cols = (p.n + kTile - 1) / kTile;
  pool.Run(tile_rows * tile_cols, [&](int item, int) {
    ProductParams tile = p;
    tile.row_begin = item / tile_cols * kTile;
    tile.row_end = std::min(p.m, tile.row_begin + kTile);
    tile.col_begin = item % tile_cols * kTile;
    tile.col_end = std::min(p.n, tile.col_begin + kTile);
    ops.product(tile);
  });
}

void LowRankNetwork::Matrix::Reset(std::size_t n) {
  values.assign(n, 0);
  gradients.assign(n, 0);
  mean.assign(n, 0);
  square.assign(n, 0);
}

LowRankNetwork::LowRankNetwork(const Params& p)
    : hidden_size_(p.hidden_size),
      neurons_(p.neurons),
      ops_(p.ops),
      pool_(p.pool),
      random_(p.seed) {}

float LowRankNetwork::Uniform() {  // Source: splitmix64
  std::uint64_t x = random_ += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  x ^= x >> 31;
  return static_cast<float>(x >> 40) * 0x1p-23F - 1;
}

void LowRankNetwork::Reset(int rank) {
  rank_ = rank;
  steps_ = 0;
  fc1_.Reset(base::Area(rank, hidden_size_));
  fc2_.Reset(base::Area(neurons_, rank));
  const float scale = std::sqrt(3.0F / static_cast<float>(hidden_size_));
  for (float& w : fc1_.values) w = scale * Uniform();  // unit variance for unit inputs
}

void LowRankNetwork::SetWeights(std::span<const float> fc1, std::span<const float> fc2) {
  CHECK_EQ(fc1.size(), fc1_.values.size());
  CHECK_EQ(fc2.size(), fc2_.values.size());
  std::copy(fc1.begin(), fc1.end(), fc1_.values.begin());
  std::copy(fc2.begin(), fc2.end(), fc2_.values.begin());
}

void LowRankNetwork::Forward(const float* x, int tokens) {
  hidden_.resize(base::Area(tokens, rank_));
  logits_.resize(base::Area(tokens, neurons_));
  MultiplyTiled(ops_, pool_,
                {.a = x,
                 .b = fc1_.values.data(),
                 .c = hidden_.data(),
                 .m = tokens,
                 .n = rank_,
                 .k = hidden_size_,
                 .b_transposed = true});
  for (float& h : hidden_) h = std::max(h, 0.0F);
  MultiplyTiled(ops_, pool_,
                {.a = hidden_.data(),
                 .b = fc2_.values.data(),
                 .c = logits_.data(),
                 .m = tokens,
                 .n = neurons_,
                 .k = rank_,
                 .b_transposed = true});
}

std::span<const float> LowRankNetwork::Logits(std::span<const float> x, int tokens) {
  CHECK_EQ(x.size(), base::Area(tokens, hidden_size_));
  Forward(x.data(), tokens);
  return logits_;
}

void LowRankNetwork::Train(const Step& step) {
  const int tokens = base::IntSize(step.tokens);
  Forward(step.x.data(), tokens);
  pool_.Run(tokens, [&](int t, int) {
    ops_.logistic_gradient({.z = logits_.data() + base::Area(t, neurons_),
                            .labels = step.labels.row(step.tokens[t]).data(),
                            .n = neurons_,
                            .positive_weight = step.positive_weight,
                            .scale = 1.0F / static_cast<float>(tokens)});
  });
  MultiplyTiled(ops_, pool_,
                {.a = logits_.data(),
                 .b = hidden_.data(),
                 .c = fc2_.gradients.data(),
                 .m = neurons_,
                 .n = rank_,
                 .k = tokens,
                 .a_transposed = true});
  hidden_gradient_.resize(hidden_.size());
  MultiplyTiled(ops_, pool_,
                {.a = logits_.data(),
                 .b = fc2_.values.data(),
                 .c = hidden_gradient_.data(),
                 .m = tokens,
                 .n = rank_,
                 .k = neurons_});
  for (std::size_t i = 0; i < hidden_.size(); ++i)
    hidden_gradient_[i] = hidden_[i] > 0 ? hidden_gradient_[i] : 0.0F;
  MultiplyTiled(ops_, pool_,
                {.a = hidden_gradient_.data(),
                 .b = step.x.data(),
                 .c = fc1_.gradients.data(),
                 .m = rank_,
                 .n = hidden_size_,
                 .k = tokens,
                 .a_transposed = true});
  ++steps_;
  Update(fc1_, step.learning_rate / static_cast<float>(hidden_size_));
  Update(fc2_, step.learning_rate * kOutputRate / static_cast<float>(rank_));
}

void LowRankNetwork::Update(Matrix& matrix, float learning_rate) {
  AdamParams p;
  const auto corrected = std::sqrt(1 - std::pow(p.square_decay, static_cast<float>(steps_))) /
                         (1 - std::pow(p.decay, static_cast<float>(steps_)));
  const std::size_t n = matrix.values.size();
  pool_.Run(static_cast<int>((n + kUpdateChunk - 1) / kUpdateChunk), [&](int item, int) {
    const std::size_t begin = base::Area(item, kUpdateChunk);
    AdamParams chunk = p;
    chunk.weights = matrix.values.data() + begin;
    chunk.gradients = matrix.gradients.data() + begin;
    chunk.mean = matrix.mean.data() + begin;
    chunk.square = matrix.square.data() + begin;
    chunk.n = static_cast<int>(std::min<std::size_t>(kUpdateChunk, n - begin));
    chunk.rate = learning_rate * corrected;
    ops_.adam(chunk);
  });
}

}  // namespace thermocline::offline
