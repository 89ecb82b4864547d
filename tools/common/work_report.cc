#include "tools/common/work_report.h"

#include <algorithm>

namespace thermocline::tools {

Json WorkJson(std::span<const FfnLayerStats> layers) {
  FfnLayerStats sum;
  for (const FfnLayerStats& layer : layers) {
    sum.tokens = std::max(sum.tokens, layer.tokens);
    sum.gate_rows += layer.gate_rows;
    sum.up_rows += layer.up_rows;
    sum.down_rows += layer.down_rows;
    sum.bytes += layer.bytes;
    sum.dense_bytes += layer.dense_bytes;
    sum.predictor_bytes += layer.predictor_bytes;
    sum.operations += layer.operations;
    sum.dense_operations += layer.dense_operations;
    sum.predictor_operations += layer.predictor_operations;
  }
  if (sum.tokens == 0) return {};
  return Json::Object{{"tokens", sum.tokens},
                      {"layers", layers.size()},
                      {"gate_rows", sum.gate_rows},
                      {"up_rows", sum.up_rows},
                      {"down_rows", sum.down_rows},
                      {"bytes", sum.bytes},
                      {"dense_bytes", sum.dense_bytes},
                      {"predictor_bytes", sum.predictor_bytes},
                      {"operations", sum.operations},
                      {"dense_operations", sum.dense_operations},
                      {"predictor_operations", sum.predictor_operations}};
}

}  // namespace thermocline::tools
