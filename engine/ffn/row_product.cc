#include "engine/ffn/row_product.h"

#include "engine/base/check.h"
#include "engine/nn/offset.h"

namespace thermocline::ffn {

void Multiply(const FfnContext& context, const RowProduct& p, int thread) {
  const kernels::PackedMatrix& weight = p.matrix.linear.weight;
  const bool rows = p.matrix.layout == model::Layout::kRows;
  CHECK(rows || p.ids == nullptr);
  if (rows) {
    context.ops.gemm_rows({.weights = p.matrix.rows(),
                           .ids = p.ids,
                           .first = p.range.begin,
                           .count = p.count,
                           .activations = p.hidden.view(),
                           .tokens = p.tokens,
                           .out = p.out,
                           .out_stride = p.out_stride,
                           .scratch = context.multiplier.scratch(thread)});
  } else {
    context.ops.gemm({.weights = {weight.type, p.range.count, weight.cols,
                                  weight.panel(p.range.begin / kernels::kPanelRows)},
                      .activations = p.hidden.view(),
                      .tokens = p.tokens,
                      .out = p.out,
                      .out_stride = p.out_stride,
                      .panel_begin = 0,
                      .panel_end = kernels::NumPanels(p.range.count),
                      .prefetch_bytes = context.multiplier.prefetch_bytes()});
  }
  const float* bias = p.matrix.linear.bias;
  for (int t = 0; bias != nullptr && t < p.tokens; ++t) {
    for (int k = 0; k < p.count; ++k)
      p.out[nn::Offset(t, p.out_stride) + k] +=
          bias[p.ids != nullptr ? p.ids[k] : p.range.begin + k];
  }
}

}  // namespace thermocline::ffn
