#include "engine/exec/rank_head.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "engine/nn/normalize.h"

namespace thermocline::exec {

namespace {

float Gelu(float x) { return x / 2 * (1 + std::erf(x / std::numbers::sqrt2_v<float>)); }

}  // namespace

RankHead::RankHead(const model::ModelConfig& config, const model::RankWeights& weights,
                   const kernels::OpTable& ops, nn::Multiplier& multiplier)
    : config_(config),
      weights_(weights),
      ops_(ops),
      multiplier_(multiplier),
      dense_(config.hidden_size) {
  input_.Resize(1, config.hidden_size);
}

float RankHead::Score(std::span<const float> state) {
  std::copy(state.begin(), state.end(), input_.x.begin());
  nn::QuantizeToken(ops_, input_, 0);
  const std::array dense = {nn::Product{&weights_.dense, dense_.data()}};
  multiplier_.Multiply(dense, input_.view(), 1);
  const bool normed = weights_.norm.weight != nullptr;
  std::transform(dense_.begin(), dense_.end(), input_.x.begin(),
                 [normed](float x) { return normed ? Gelu(x) : std::tanh(x); });
  if (normed)
    nn::Normalize(ops_, config_, weights_.norm, input_.x.data(), config_.hidden_size,
                  input_.x.data());
  nn::QuantizeToken(ops_, input_, 0);
  float score = 0;
  const std::array output = {nn::Product{&weights_.output, &score}};
  multiplier_.Multiply(output, input_.view(), 1);
  return score;
}

}  // namespace thermocline::exec
