// Checks products of whole matrices: quantized types to the bit, float types within 1e-5 of sum |w
// x|.
#include "tests/gpu/checks_dense.h"
#include "tests/gpu/dense_inputs.h"

namespace thermocline::gpu {
namespace {

using kernels::DType;
using kernels::Traits;

struct Case {
  DType type;
  int rows, cols, tokens;
};
// Operations on the product.
struct Finish {
  bool bias, accumulate, fold;
};

std::string Text(const Case& c, const Finish& f) {
  return std::string(Traits(c.type).name) + " " + std::to_string(c.rows) + "x" +
         std::to_string(c.cols) + " T" + std::to_string(c.tokens) + (f.bias ? " bias" : "") +
         (f.accumulate ? " accumulate" : "") + (f.fold ? " fold" : "");
}

// sum |w x| of every output.
std::vector<double> Magnitudes(const Case& c, const std::vector<std::uint8_t>& rows,
                               const std::vector<float>& x) {
  std::vector<double> out;
  std::vector<float> w(static_cast<std::size_t>(c.cols));
  out.resize(Elements(c.tokens, c.rows));
  for (int r = 0; r < c.rows; ++r) {
    kernels::DequantizeRow(
        c.type, rows.data() + static_cast<std::size_t>(r) * kernels::RowBytes(c.type, c.cols),
        c.cols, w.data());
    for (int t = 0; t < c.tokens; ++t) {
      double sum = 1e-30;
      for (std::size_t i = 0; i < w.size(); ++i)
        sum +=
            std::fabs(static_cast<double>(w[i]) * static_cast<double>(x[Elements(t, c.cols) + i]));
      out[Elements(t, c.rows) + static_cast<std::size_t>(r)] = sum;
    }
  }
  return out;
}

Check CheckCase(const kernels::DeviceOps& ops, const Case& c, const Finish& f) {
  const HostTokens x(c.tokens, c.cols, kernels::RandomFloats(Elements(c.tokens, c.cols), 7));
  const auto rows = kernels::RandomRows(c.type, c.rows, c.cols, 3);
  const auto packed = kernels::Pack(c.type, rows, c.rows, c.cols);
  const auto bias = kernels::RandomFloats(static_cast<std::size_t>(c.rows), 5);
  std::vector<float> want = kernels::RandomFloats(Elements(c.tokens, c.rows), 11);
  const std::vector<float> before = want;
  kernels::GemmParams gemm{.weights = {c.type, c.rows, c.cols, packed.data()},
                           .activations = x.view(),
                           .tokens = c.tokens,
                           .out = want.data(),
                           .out_stride = c.rows,
                           .panel_begin = 0,
                           .panel_end = kernels::NumPanels(c.rows)};
  kernels::CpuOps()->gemm(gemm);
  const int results = f.fold ? c.tokens / 2 : c.tokens;
  for (int t = 0; t < results; ++t) {
    for (int r = 0; r < c.rows; ++r) {
      const std::size_t at = Elements(t, c.rows) + static_cast<std::size_t>(r);
      if (f.fold) want[at] += want[at + Elements(results, c.rows)];
      if (f.bias) want[at] += bias[static_cast<std::size_t>(r)];
      if (f.accumulate) want[at] += before[at];
    }
  }
  const Array<std::uint8_t> weights(ops, packed);
  const Array<float> device_bias(ops, bias), out(ops, before);
  const DeviceTokens device_x(ops, x);
  gemm.weights.data = weights;
  gemm.activations = device_x.view().view();
  gemm.out = out;
  MustDo(ops,
         ops.dense.gemm({.gemm = gemm,
                         .bias = f.bias ? device_bias.get() : nullptr,
                         .accumulate = f.accumulate,
                         .fold = f.fold},
                        {}),
         "gemm");
  Wait(ops);
  auto got = out.Get();
  got.resize(Elements(results, c.rows));
  want.resize(got.size());
  if (Traits(c.type).quantized) return {"gemm", Text(c, f), 0, Differing(got, want)};
  return {"gemm", Text(c, f), 1e-5, Farthest(got, want, Magnitudes(c, rows, x.x))};
}

}  // namespace

std::vector<Check> CheckGemm(const kernels::DeviceOps& ops, bool large) {
  std::vector<Check> checks;
  for (int i = 0; i < kernels::kNumDeviceDTypes; ++i) {
    const auto type = static_cast<DType>(i);
    const int block = std::max(32, Traits(type).block_size);
    for (const int tokens : {1, 2, 3, 5, 8, 9, 19, 64}) {
      for (const int rows : {1, 17, 80})
        checks.push_back(CheckCase(ops, {type, rows, block * 3, tokens}, {}));
    }
    // Longer than a run of groups in every kernel.
    for (const int tokens : {1, 2, 4, 8, 33})
      checks.push_back(CheckCase(ops, {type, 33, 256 * 17, tokens}, {}));
    checks.push_back(CheckCase(ops, {type, 33, block * 5, 1},
                               {.bias = true, .accumulate = true, .fold = false}));
    checks.push_back(CheckCase(ops, {type, 33, block * 5, 10},
                               {.bias = true, .accumulate = true, .fold = false}));
    checks.push_back(CheckCase(ops, {type, 33, block * 5, 2},
                               {.bias = true, .accumulate = false, .fold = true}));
    checks.push_back(CheckCase(ops, {type, 33, block * 5, 12},
                               {.bias = false, .accumulate = false, .fold = true}));
    if (!Traits(type).quantized) checks.push_back(CheckCase(ops, {type, 33, 173, 3}, {}));
    if (!large) continue;
    for (const int tokens : {1, 4, 64})
      checks.push_back(CheckCase(ops, {type, 4096, 4096, tokens}, {}));
    checks.push_back(CheckCase(ops, {type, 4096, 11008, 1}, {}));
  }
  return checks;
}

}  // namespace thermocline::gpu
