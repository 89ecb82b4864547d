// Checks products of rows, and their epilogues.
#include <cmath>

#include "tests/gpu/checks_sparse.h"
#include "tests/gpu/sparse_inputs.h"

namespace thermocline::gpu {
namespace {

using kernels::DeviceOps;
using kernels::GateActivation;
using kernels::ReferenceOps;
using kernels::RowsEpilogue;

constexpr float kUntouched = -77;

// [T, neurons]; elements without a row in the set stay untouched.
std::vector<float> ReferenceProducts(const Layer& layer, const Tokens& x,
                                     const std::vector<std::uint16_t>& masks) {
  std::vector<float> out(static_cast<std::size_t>(x.tokens * layer.neurons), kUntouched);
  const std::vector<std::int32_t> ids = Set::ListOf(masks).first;
  std::vector<float> products(ids.size() * static_cast<std::size_t>(x.tokens) + 1);
  std::vector<std::uint8_t> scratch(kernels::RowScratchBytes(layer.type, layer.cols));
  const kernels::OpTable* fast = kernels::CpuOps();
  (fast != nullptr ? *fast : ReferenceOps())
      .gemm_rows({.weights = layer.here(),
                  .ids = ids.data(),
                  .count = static_cast<int>(ids.size()),
                  .activations = x.here(),
                  .tokens = x.tokens,
                  .out = products.data(),
                  .out_stride = static_cast<int>(ids.size()),
                  .scratch = scratch.data()});
  for (int t = 0; t < x.tokens; ++t) {
    for (std::size_t k = 0; k < ids.size(); ++k)
      out[static_cast<std::size_t>(t * layer.neurons + ids[k])] =
          products[static_cast<std::size_t>(t) * ids.size() + k];
  }
  return out;
}

// The largest error of float types' products, relative to sum |w x|.
double RelativeError(const Layer& layer, const Tokens& x, const std::vector<float>& got,
                     const std::vector<float>& want) {
  double worst = 0;
  std::vector<float> row(static_cast<std::size_t>(layer.cols));
  for (int r = 0; r < layer.neurons; ++r) {
    kernels::DequantizeMatrixRow(layer.here(), r, row.data());
    for (int t = 0; t < x.tokens; ++t) {
      const auto at = static_cast<std::size_t>(t * layer.neurons + r);
      if (want[at] == kUntouched) {
        worst = got[at] == kUntouched ? worst : 1e9;
        continue;
      }
      double size = 1e-30;
      for (int c = 0; c < layer.cols; ++c)
        size += std::fabs(static_cast<double>(row[static_cast<std::size_t>(c)]) *
                          static_cast<double>(x.x[static_cast<std::size_t>(t * layer.cols + c)]));
      worst = std::max(
          worst, std::fabs(static_cast<double>(got[at]) - static_cast<double>(want[at])) / size);
    }
  }
  return worst;
}

Check CheckProducts(const DeviceOps& ops, DType type, int neurons, int cols, int tokens,
                    int every) {
  const Layer layer(ops, type, neurons, cols, every == 1);
  const Tokens x(ops, tokens, cols);
  const auto masks = SomeMasks(layer.slots, tokens, every);
  Set set(ops, neurons);
  set.Fill(masks);
  Array<float> out(ops, std::vector<float>(static_cast<std::size_t>(tokens * neurons), kUntouched));
  MustDo(ops,
         ops.sparse.gemm_rows({.weights = layer.there(),
                               .neurons = set.view(),
                               .activations = x.there(),
                               .tokens = tokens,
                               .out = out,
                               .stride = neurons},
                              {}),
         "gemm_rows");
  const auto want = ReferenceProducts(layer, x, masks), got = out.Get();
  Check check{"gemm_rows", ShapeText(type, neurons, cols, tokens) + " 1/" + std::to_string(every)};
  if (kernels::Traits(type).quantized) {
    check.error = Differing(got, want);
  } else {
    check.tolerance = 1e-5;
    check.error = RelativeError(layer, x, got, want);
  }
  return check;
}

struct Epilogue {
  GateActivation activation;
  const char* name;
  float threshold, least;
  double tolerance;  // relative, of h
};
constexpr Epilogue kEpilogues[] = {{GateActivation::kRelu, "relu", 0, 0, 0},
                                   {GateActivation::kFatRelu, "fatrelu", 0.4F, 0, 0},
                                   {GateActivation::kDRelu, "drelu", 0, 0, 0},
                                   {GateActivation::kRelu2, "relu2", 0, 0.3F, 0},
                                   {GateActivation::kSilu, "silu", 0, 0.2F, 1e-5},
                                   {GateActivation::kGelu, "gelu", 0, 0.2F, 1e-5},
                                   {GateActivation::kGeluTanh, "gelu_tanh", 0, 0.2F, 1e-5}};

float Gated(const Epilogue& e, float gate, const float* up) {
  float out;
  ReferenceOps().gated({.gate = &gate,
                        .up = up,
                        .n = 1,
                        .activation = e.activation,
                        .threshold = e.threshold,
                        .out = &out});
  return out;
}

double Apart(float got, float want) {
  if (got == want) return 0;
  return std::fabs(static_cast<double>(got) - static_cast<double>(want)) /
         std::max(1e-3, std::fabs(static_cast<double>(want)));
}

// Checks the product of the gate with kDecide, which finds the live neurons, and that of up with
// kCombine, which computes their h. `alone` is the h of a network without a gate, by kDecide.
Check CheckEpilogue(const DeviceOps& ops, const Epilogue& e, int cols, int tokens) {
  constexpr int kNeurons = 1100;
  const Layer gate(ops, DType::kQ8_0, kNeurons, cols), up(ops, DType::kQ4_0, kNeurons, cols);
  const Tokens x(ops, tokens, cols);
  const auto masks = SomeMasks(gate.slots, tokens, 2);
  const auto area = static_cast<std::size_t>(tokens * kNeurons);
  Set predicted(ops, kNeurons), live(ops, kNeurons);
  predicted.Fill(masks);
  live.masks.Set(std::vector<std::uint16_t>(kNeurons, 0xFFFF));  // left by the previous layer
  const std::vector<float> biases = kernels::RandomFloats(kNeurons, 3);
  const Array<float> bias(ops, biases), least(ops, std::vector<float>{e.least});
  const std::vector<float> untouched(area, kUntouched);
  Array<float> products(ops, untouched), h(ops, untouched), alone(ops, untouched);
  kernels::DeviceGemmRowsParams p = {.weights = gate.there(),
                                     .neurons = predicted.view(),
                                     .activations = x.there(),
                                     .tokens = tokens,
                                     .bias = bias,
                                     .epilogue = RowsEpilogue::kDecide,
                                     .activation = e.activation,
                                     .activation_threshold = e.threshold,
                                     .out = products,
                                     .stride = kNeurons,
                                     .least = least,
                                     .live = live.view(),
                                     .h = alone};
  MustDo(ops, ops.sparse.gemm_rows(p, {}), "gemm_rows");
  p.weights = up.there();
  p.neurons = live.view();
  p.epilogue = RowsEpilogue::kCombine;
  p.gate = products;
  p.h = h;
  MustDo(ops, ops.sparse.gemm_rows(p, {}), "gemm_rows");

  const auto gates = ReferenceProducts(gate, x, masks);
  std::vector<std::uint16_t> lives(kNeurons);
  std::vector<float> want_alone(area, kUntouched);
  const auto at = [](int t, int i) { return static_cast<std::size_t>(t * kNeurons + i); };
  for (int i = 0; i < kNeurons; ++i) {
    const auto n = static_cast<std::size_t>(i);
    for (int t = 0; t < tokens && masks[n] != 0; ++t) {
      const float act = Gated(e, gates[at(t, i)] + biases[n], nullptr);
      const bool lives_for = (masks[n] >> t & 1) != 0 && act != 0 && std::fabs(act) >= e.least;
      lives[n] |= static_cast<std::uint16_t>(lives_for << t);
      want_alone[at(t, i)] = lives_for ? act : 0;
    }
  }
  const auto ups = ReferenceProducts(up, x, lives);
  double error = live.DiffersFrom(lives);
  const auto got = h.Get(), got_alone = alone.Get();
  for (int i = 0; i < kNeurons; ++i) {
    const auto n = static_cast<std::size_t>(i);
    for (int t = 0; t < tokens; ++t) {
      error = std::max(error, Apart(got_alone[at(t, i)], want_alone[at(t, i)]));
      const float u = ups[at(t, i)] + biases[n];
      const float want = lives[n] == 0              ? kUntouched
                         : (lives[n] >> t & 1) == 0 ? 0
                                                    : Gated(e, gates[at(t, i)] + biases[n], &u);
      error = std::max(error, Apart(got[at(t, i)], want));
    }
  }
  return {std::string("decide, combine ") + e.name,
          "1100x" + std::to_string(cols) + " T" + std::to_string(tokens), e.tolerance, error};
}

// Gate and up in one launch have the bits of two launches.
Check CheckGated(const DeviceOps& ops, DType type, const Epilogue& e, int neurons, int cols,
                 int tokens) {
  const Layer gate(ops, type, neurons, cols), up(ops, type, neurons, cols, false, 5);
  const Tokens x(ops, tokens, cols);
  Set predicted(ops, neurons), live(ops, neurons), live_at_once(ops, neurons);
  predicted.Fill(SomeMasks(gate.slots, tokens, 2));
  const auto area = static_cast<std::size_t>(tokens * neurons);
  const std::vector<float> untouched(area, kUntouched);
  const Array<float> bias(ops, kernels::RandomFloats(static_cast<std::size_t>(neurons), 3)),
      up_bias(ops, kernels::RandomFloats(static_cast<std::size_t>(neurons), 4)),
      least(ops, std::vector<float>{e.least});
  Array<float> products(ops, untouched), h(ops, untouched), at_once(ops, untouched);
  kernels::DeviceGemmRowsParams p = {.weights = gate.there(),
                                     .neurons = predicted.view(),
                                     .activations = x.there(),
                                     .tokens = tokens,
                                     .bias = bias,
                                     .epilogue = RowsEpilogue::kGated,
                                     .activation = e.activation,
                                     .activation_threshold = e.threshold,
                                     .stride = neurons,
                                     .least = least,
                                     .live = live_at_once.view(),
                                     .h = at_once,
                                     .up = up.there(),
                                     .up_bias = up_bias};
  MustDo(ops, ops.sparse.gemm_rows(p, {}), "gemm_rows");
  p.epilogue = RowsEpilogue::kDecide;
  p.out = products;
  p.live = live.view();
  p.h = nullptr;
  MustDo(ops, ops.sparse.gemm_rows(p, {}), "gemm_rows");
  p.weights = up.there();
  p.neurons = live.view();
  p.bias = up_bias;
  p.epilogue = RowsEpilogue::kCombine;
  p.gate = products;
  p.h = h;
  MustDo(ops, ops.sparse.gemm_rows(p, {}), "gemm_rows");
  return {"gate and up at once", ShapeText(type, neurons, cols, tokens), 0,
          live_at_once.DiffersFrom(live.masks.Get()) + Differing(at_once.Get(), h.Get())};
}

std::vector<int> Columns(DType type) {
  if (!kernels::Traits(type).quantized) return {5, 64, 172};
  const int block = kernels::Traits(type).block_size;
  return {block, 9 * block + (block == 32 ? 64 : 0)};
}

}  // namespace

std::vector<Check> CheckGemmRows(const DeviceOps& ops, bool large) {
  std::vector<Check> checks;
  for (int t = 0; t < kernels::kNumDeviceDTypes; ++t) {
    const auto type = static_cast<DType>(t);
    for (const int cols : Columns(type)) {
      for (const int tokens : {1, 3, 16})
        checks.push_back(CheckProducts(ops, type, 70, cols, tokens, 2));
    }
    // On the tensor cores: one tile and part of another, more columns than the stages hold.
    if (kernels::Traits(type).quantized) {
      checks.push_back(CheckProducts(ops, type, 70, 256, 9, 2));
      checks.push_back(CheckProducts(ops, type, 70, 1280, 16, 1));
    }
    // More than one segment of columns, and tiles of several rows.
    checks.push_back(CheckProducts(ops, type, 1300, 1280, 1, 1));
    checks.push_back(CheckProducts(ops, type, 40, 4096 + 256, 2, 1));
    if (large) {
      for (const int tokens : {1, 5, 16}) {
        checks.push_back(CheckProducts(ops, type, 11008, 4096, tokens, 10));
        checks.push_back(CheckProducts(ops, type, 11008, 4096, tokens, 1));
      }
    }
  }
  return checks;
}

std::vector<Check> CheckEpilogues(const DeviceOps& ops) {
  std::vector<Check> checks;
  for (const Epilogue& e : kEpilogues) {
    for (const int tokens : {1, 4, 16}) checks.push_back(CheckEpilogue(ops, e, 64, tokens));
    checks.push_back(CheckEpilogue(ops, e, 256, &e == kEpilogues ? 16 : 9));
  }
  for (int t = 0; t < kernels::kNumDeviceDTypes; ++t) {
    const auto type = static_cast<DType>(t);
    const int cols = Columns(type).back();
    checks.push_back(CheckGated(ops, type, kEpilogues[0], 1300, cols, 1));
    checks.push_back(CheckGated(ops, type, kEpilogues[1], 300, cols, 3));
    checks.push_back(CheckGated(ops, type, kEpilogues[3], 70, cols, 16));
    if (kernels::Traits(type).quantized) {
      checks.push_back(CheckGated(ops, type, kEpilogues[3], 150, 512, 9));
      checks.push_back(CheckGated(ops, type, kEpilogues[1], 150, 256, 16));
    }
  }
  return checks;
}

}  // namespace thermocline::gpu
