#include "engine/exec/rank_head.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace thermocline::exec {

RankHead::RankHead(const model::RankWeights& weights, const kernels::OpTable& ops,
                   nn::Multiplier& multiplier, int hidden_size)
    : weights_(weights), ops_(ops), multiplier_(multiplier), dense_(hidden_size) {
  input_.Resize(1, hidden_size);
}

float RankHead::Score(std::span<const float> state) {
  std::copy(state.begin(), state.end(), input_.x.begin());
  nn::QuantizeToken(ops_, input_, 0);
  const std::array dense = {nn::Product{&weights_.dense, dense_.data()}};
  multiplier_.Multiply(dense, input_.view(), 1);
  std::transform(dense_.begin(), dense_.end(), input_.x.begin(),
                 [](float x) { return std::tanh(x); });
  nn::QuantizeToken(ops_, input_, 0);
  float score = 0;
  const std::array output = {nn::Product{&weights_.output, &score}};
  multiplier_.Multiply(output, input_.view(), 1);
  return score;
}

}  // namespace thermocline::exec
