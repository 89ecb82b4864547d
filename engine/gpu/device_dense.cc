#include "engine/gpu/device_dense.h"

namespace thermocline::gpu {
namespace {

kernels::GemmParams AllPanels(const kernels::PackedMatrix& weight,
                              const kernels::DeviceActivations& x, int tokens, float* out) {
  return {.weights = weight,
          .activations = x.view(),
          .tokens = tokens,
          .out = out,
          .out_stride = weight.rows,
          .panel_begin = 0,
          .panel_end = kernels::NumPanels(weight.rows)};
}

}  // namespace

Status DeviceDense::Norm(const model::NormWeights& norm, const float* x, int tokens,
                         const kernels::DeviceActivations& out) const {
  const model::ModelConfig& c = model_.config();
  return Check(model_.ops().dense.norm({.x = x,
                                        .weight = norm.weight,
                                        .bias = norm.bias,
                                        .rms = c.architecture->norm == model::Norm::kRms,
                                        .n = c.hidden_size,
                                        .tokens = tokens,
                                        .eps = static_cast<float>(c.norm_eps),
                                        .out = out},
                                       model_.stream().handle()),
               "a norm");
}

Status DeviceDense::Multiply(const model::Linear& matrix, const kernels::DeviceActivations& x,
                             int tokens, float* out, bool accumulate) const {
  return Check(model_.ops().dense.gemm({.gemm = AllPanels(matrix.weight, x, tokens, out),
                                        .bias = matrix.bias,
                                        .accumulate = accumulate},
                                       model_.stream().handle()),
               "a product");
}

Status DeviceDense::MultiplyPrecisely(const model::Linear& matrix,
                                      const kernels::DeviceActivations& x, int tokens,
                                      float* out) const {
  const kernels::Stream stream = model_.stream().handle();
  RETURN_IF_ERROR(
      Check(model_.ops().dense.quantize({.x = x, .tokens = tokens, .with_rest = true}, stream),
            "rounding the head's input"));
  return Check(
      model_.ops().dense.gemm(
          {.gemm = AllPanels(matrix.weight, x, 2 * tokens, out), .bias = matrix.bias, .fold = true},
          stream),
      "the head");
}

Status DeviceDense::Add(float* x, const float* y, int tokens) const {
  return Check(model_.ops().dense.add({.x = x, .y = y, .n = tokens * model_.config().hidden_size},
                                      model_.stream().handle()),
               "an addition");
}

}  // namespace thermocline::gpu
