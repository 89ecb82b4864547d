// The buffers in which one side of a shared layer sums down rows, by run (kernels/shared_sum.h).
#pragma once

#include <vector>

#include "engine/base/index.h"
#include "engine/ffn/ffn_partition.h"
#include "engine/model/model_config.h"

namespace thermocline::ffn {

struct SideSums {
  SideSums() = default;
  SideSums(const model::ModelConfig& config, int tokens_max)
      : maxima(Cells(config, tokens_max) / kernels::kActivationBlock),
        minimums(maxima.size()),
        high(Cells(config, tokens_max)),
        low(high.size()) {}
  static std::size_t Bytes(const model::ModelConfig& config, int tokens_max) {
    return Cells(config, tokens_max) * 2 * sizeof(std::int32_t) +
           Cells(config, tokens_max) / kernels::kActivationBlock * 2 * sizeof(float);
  }

  kernels::FinishSumParams::Part part() const { return {high.data(), low.data(), minimums.data()}; }
  // The destination of a sum under `limits`, instead of `maxima`.
  kernels::SharedSum under(const float* limits) {
    return {nullptr, limits, high.data(), low.data(), minimums.data()};
  }

  std::vector<float> maxima, minimums;  // [kShareTokens, R, D / 32]
  std::vector<std::int32_t> high, low;  // [kShareTokens, R, D]

 private:
  static std::size_t Cells(const model::ModelConfig& c, int tokens_max) {
    return base::Area(std::min(tokens_max, kShareTokens) * kernels::NumSumRuns(c.intermediate_size),
                      c.hidden_size);
  }
};

}  // namespace thermocline::ffn
