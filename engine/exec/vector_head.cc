#include "engine/exec/vector_head.h"

#include <algorithm>
#include <cmath>

#include "engine/base/index.h"

namespace thermocline::exec {

std::vector<float> VectorHead::Apply(std::vector<float> pooled) {
  for (const model::Linear& module : modules_) {
    if (module.weight.rows == 0) continue;
    input_.Resize(1, base::IntSize(pooled));
    std::ranges::copy(pooled, input_.x.begin());
    nn::QuantizeToken(ops_, input_, 0);
    pooled.assign(module.weight.rows, 0);
    const std::array product = {nn::Product{&module, pooled.data()}};
    multiplier_.Multiply(product, input_.view(), 1);
  }
  double squares = 0;
  for (const float value : pooled) squares += double{value} * value;
  const auto scale = static_cast<float>(squares > 0 ? 1 / std::sqrt(squares) : 0);
  for (float& value : pooled) value *= scale;
  return pooled;
}

}  // namespace thermocline::exec
