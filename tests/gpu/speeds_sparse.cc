// Speeds of the sparse ops, and of a whole feed-forward network against the dense one.
//
// The weights are those of several layers, so that no cache holds them. The activity is forced: one
// neuron in ten, by FATReLU's threshold and, for prediction, by the neurons' own thresholds. With
// several tokens, predicted networks use the first token's neurons for all, others each token's
// own: the best and the worst case of prefill.
#include <algorithm>
#include <climits>

#include "tests/gpu/checks_sparse.h"
#include "tests/gpu/sparse_inputs.h"
#include "tests/gpu/timing.h"

namespace thermocline::gpu {
namespace {

using kernels::DeviceOps;
using kernels::GateActivation;
using kernels::RowsEpilogue;
using kernels::Stream;

// A matrix of several layers: random bytes, the same for each.
struct Copies {
  std::size_t step;
  int count;
  Array<std::uint8_t> bytes;

  Copies(const DeviceOps& ops, const std::vector<std::uint8_t>& one, int n)
      : step((one.size() + 255) / 256 * 256),
        count(n),
        bytes(ops, step * static_cast<std::size_t>(n)) {
    MustDo(ops, ops.runtime.copy_to_device(bytes, one.data(), one.size(), {}), "copying there");
    for (int i = 1; i < n; ++i)
      MustDo(ops, ops.runtime.copy_on_device(at(i), bytes, one.size(), {}), "copying");
    MustDo(ops, ops.runtime.stream_synchronize({}), "waiting");
  }
  std::uint8_t* at(int i) const { return bytes.get() + static_cast<std::size_t>(i % count) * step; }
};

// A feed-forward network of several layers with all outputs of its ops. F neurons, D columns, T
// tokens.
struct Network {
  const DeviceOps& ops;
  const DType type;
  const int f, d, tokens;
  const bool tiny;
  Copies gate, up, down, dense_gate, dense_up, dense_down, signs;
  Tokens x;
  Tokens wide;  // [T, F] for the dense down projection
  Set all, predicted, live;
  Array<float> gates, ups, h, maxima, minimums, out, one;
  Array<std::int32_t> tickets;
  Array<std::int32_t> high, low, thresholds, totals;
  Array<std::uint64_t> words;
  float threshold = 0;  // of FATReLU

  Network(const DeviceOps& o, DType t, int count, bool tiny_shapes)
      : ops(o),
        type(t),
        f(tiny_shapes ? 1280 : 11008),
        d(tiny_shapes ? 256 : 4096),
        tokens(count),
        tiny(tiny_shapes),
        gate(o, InRows(1), Layers()),
        up(o, InRows(2), Layers()),
        down(o, InRows(3), Layers()),
        dense_gate(o, InPanels(f, d, 1), Layers()),
        dense_up(o, InPanels(f, d, 2), Layers()),
        dense_down(o, InPanels(d, f, 3), Layers()),
        signs(o, kernels::RandomRows(DType::kQ8_0, f, kernels::SignWords(d) * 32 / 4, 4),
              2 * Layers()),
        x(o, tokens, d),
        wide(o, tokens, f),
        all(o, f),
        predicted(o, f),
        live(o, f),
        gates(o, Size(tokens * f)),
        ups(o, Size(tokens * f)),
        h(o, Size(tokens * f)),
        maxima(o, Numbers() / 32),
        minimums(o, Numbers() / 32),
        out(o, Size(tokens * d)),
        one(o, std::vector<float>{0}),
        tickets(
            o, std::vector<std::int32_t>(Size(tokens * kernels::DeviceDownRowsParams::Tickets(d)))),
        high(o, Numbers()),
        low(o, Numbers()),
        thresholds(o, Size(f)),
        totals(o, Size(tokens)),
        words(o, Size(tokens * kernels::SignInputWords(d, 1))) {
    all.Fill(std::vector<std::uint16_t>(Size(f), static_cast<std::uint16_t>((1U << tokens) - 1)));
    ForceOneInTen();
  }
  static std::size_t Size(int n) { return static_cast<std::size_t>(n); }
  std::vector<std::uint8_t> InRows(unsigned seed) const {
    return kernels::PackAllRows(type, kernels::RandomRows(type, f, d, seed), f, d);
  }
  std::vector<std::uint8_t> InPanels(int rows, int cols, unsigned seed) const {
    return kernels::Pack(type, kernels::RandomRows(type, rows, cols, seed), rows, cols);
  }
  int Layers() const { return tiny ? 1 : 4; }
  std::size_t Numbers() const { return Size(tokens * kernels::NumSumRuns(f)) * Size(d); }
  kernels::DeviceRows Rows(const Copies& m, int layer) const {
    return {type, f, d, m.at(layer), nullptr};
  }

  void ForceOneInTen() {
    MustDo(ops, Multiply(gate, 0, all, RowsEpilogue::kStore, {}), "gemm_rows");
    std::vector<float> sorted = gates.Get();
    sorted.resize(Size(f));  // of the first token
    const std::vector<float> values = sorted;
    std::sort(sorted.begin(), sorted.end());
    threshold = std::max(1e-6F, sorted[Size(f - f / 10)]);
    std::vector<std::int32_t> least(Size(f), INT_MAX);
    for (std::size_t i = 0; i < least.size(); ++i) {
      // Plus some false positives.
      if (values[i] >= threshold || i % 50 == 0) least[i] = INT_MIN / 2;
    }
    thresholds.Set(least);
  }

  kernels::DeviceError Multiply(const Copies& m, int layer, const Set& set, RowsEpilogue epilogue,
                                Stream stream) const {
    return ops.sparse.gemm_rows({.weights = Rows(m, layer),
                                 .neurons = set.view(),
                                 .activations = x.there(),
                                 .tokens = tokens,
                                 .epilogue = epilogue,
                                 .activation = GateActivation::kFatRelu,
                                 .activation_threshold = threshold,
                                 .out = gates,
                                 .stride = f,
                                 .live = live.view(),
                                 .gate = gates,
                                 .h = epilogue == RowsEpilogue::kDecide ? nullptr : h.get(),
                                 .up = Rows(up, layer)},
                                stream);
  }
  kernels::DeviceError Predict(int layer, Stream stream) const {
    const auto* sign = reinterpret_cast<const std::uint64_t*>(signs.at(layer));
    return ops.sparse.sign_predict({.planes = {f, d, sign, nullptr},
                                    .thresholds = thresholds,
                                    .neurons = f,
                                    .slices = 1,
                                    .tokens = tokens,
                                    .words = words,
                                    .totals = totals,
                                    .out = predicted.view()},
                                   stream);
  }
  kernels::DeviceError SumDown(int layer, Stream stream) const {
    kernels::DeviceSumRowsParams p = {.weights = Rows(down, layer),
                                      .neurons = live.view(),
                                      .h = h,
                                      .h_stride = f,
                                      .tokens = tokens,
                                      .maxima = maxima,
                                      .limits = {maxima, nullptr},
                                      .high = high,
                                      .low = low,
                                      .minimums = minimums};
    return ops.sparse.down_rows(
        {.sum = p,
         .finish = {.neurons = f,
                    .cols = d,
                    .tokens = tokens,
                    .parts = 1,
                    .limits = {maxima, nullptr},
                    .high = {high},
                    .low = {low},
                    .minimums = {type == DType::kQ4_K ? minimums.get() : nullptr},
                    .accumulate = true,
                    .out = out,
                    .out_stride = d},
         .tickets = tickets},
        stream);
  }
  kernels::DeviceError Sparse(int layer, bool predicts, Stream stream) const {
    if (predicts) {
      MustDo(ops,
             ops.sparse.pack_sign_input({.x = x.dx,
                                         .x_stride = d,
                                         .cols = d,
                                         .slices = 1,
                                         .tokens = tokens,
                                         .words = words,
                                         .totals = totals},
                                        stream),
             "pack_sign_input");
      MustDo(ops, Predict(layer, stream), "sign_predict");
    }
    MustDo(ops, Multiply(gate, layer, predicts ? predicted : all, RowsEpilogue::kGated, stream),
           "gemm_rows");
    return SumDown(layer, stream);
  }
  kernels::DeviceError DenseProduct(const Copies& m, int layer, int rows, int cols,
                                    const kernels::Activations& in, float* to,
                                    Stream stream) const {
    return ops.dense.gemm({.gemm = {.weights = {type, rows, cols, m.at(layer)},
                                    .activations = in,
                                    .tokens = tokens,
                                    .out = to,
                                    .out_stride = rows,
                                    .panel_begin = 0,
                                    .panel_end = kernels::NumPanels(rows)},
                           .accumulate = rows == d},
                          stream);
  }
  kernels::DeviceError Dense(int layer, Stream stream) const {
    MustDo(ops, DenseProduct(dense_gate, layer, f, d, x.there(), gates, stream), "gemm");
    MustDo(ops, DenseProduct(dense_up, layer, f, d, x.there(), ups, stream), "gemm");
    MustDo(ops,
           ops.dense.gated({.gate = gates,
                            .up = ups,
                            .n = f,
                            .tokens = tokens,
                            .activation = GateActivation::kFatRelu,
                            .threshold = threshold,
                            .out = {wide.dx, wide.dq, wide.dscale, wide.dscaled_sum, wide.dsum,
                                    wide.dhalf_sum, f}},
                           stream),
           "gated");
    return DenseProduct(dense_down, layer, d, f, wide.there(), out, stream);
  }
};

void MeasureNetwork(const DeviceOps& ops, DType type, int tokens, bool tiny, SparseSpeeds& to) {
  const Network n(ops, type, tokens, tiny);
  const int calls = tiny ? 2 : 40, rounds = tiny ? 1 : 9;
  const auto time = [&](const auto& call) { return MicrosecondsOf(ops, calls, rounds, call); };
  const std::string shape = ShapeText(type, n.f, n.d, tokens);
  const double row = static_cast<double>(kernels::RowBytes(type, n.d));
  const double dense = time([&](int i, Stream s) { return n.Dense(i, s); });
  for (const bool predicts : {false, true}) {
    const double us = time([&](int i, Stream s) { return n.Sparse(i, predicts, s); });
    to.ratios.push_back({predicts ? "sign" : "exact", shape, dense, us});
  }
  const double live = n.live.starts.Get().back();  // in the last run: about one in ten
  to.speeds.push_back({"sign_predict", shape,
                       static_cast<double>(kernels::SignWords(n.d)) * 8 * n.f,
                       time([&](int i, Stream s) { return n.Predict(i, s); })});
  to.speeds.push_back({"gemm_rows, all", shape, row * n.f, time([&](int i, Stream s) {
                         return n.Multiply(n.gate, i, n.all, RowsEpilogue::kStore, s);
                       })});
  to.speeds.push_back({"gemm_rows, 1 in 10", shape, row * live, time([&](int i, Stream s) {
                         return n.Multiply(n.up, i, n.live, RowsEpilogue::kCombine, s);
                       })});
  to.speeds.push_back({"sum_rows in 3 steps, 1 in 10", shape, row * live,
                       time([&](int i, Stream s) { return n.SumDown(i, s); })});
}

}  // namespace

Bandwidth MeasureBandwidth(const DeviceOps& ops, bool tiny) {
  const std::size_t bytes = std::size_t{1} << (tiny ? 16 : 30);
  const Array<std::uint8_t> from(ops, bytes), to(ops, bytes);
  const Array<std::uint32_t> sum(ops, 1);
  const int calls = tiny ? 1 : 4, rounds = tiny ? 1 : 7;
  const double read_us = MicrosecondsOf(ops, calls, rounds, [&](int i, Stream stream) {
    return ops.runtime.sum_words(i % 2 == 0 ? from.get() : to.get(), bytes, sum, stream);
  });
  const double copy_us = MicrosecondsOf(ops, calls, rounds, [&](int, Stream stream) {
    return ops.runtime.copy_on_device(to, from, bytes, stream);
  });
  const double gb = static_cast<double>(bytes) / 1e9;
  return {gb / (read_us * 1e-6), 2 * gb / (copy_us * 1e-6)};
}

SparseSpeeds MeasureSparse(const DeviceOps& ops, bool tiny) {
  SparseSpeeds speeds;
  for (const DType type : {DType::kQ4_0, DType::kQ8_0, DType::kQ4_K})
    MeasureNetwork(ops, type, 1, tiny, speeds);
  MeasureNetwork(ops, DType::kQ4_0, 16, tiny, speeds);  // a prefill step
  return speeds;
}

}  // namespace thermocline::gpu
