// Checks the down projection's sum, whole and divided between two partitions.
#include <cmath>

#include "tests/gpu/checks_sparse.h"
#include "tests/gpu/sparse_inputs.h"

namespace thermocline::gpu {
namespace {

using kernels::DeviceOps;

bool IsQuantized(DType type) { return kernels::Traits(type).quantized; }
bool HasMinimums(DType type) { return type == DType::kQ4_1 || type == DType::kQ4_K; }

// About a third is zero though the neuron is listed; some are large.
std::vector<float> SparseH(std::size_t n) {
  std::vector<float> h = kernels::RandomFloats(n, 31);
  for (std::size_t i = 0; i < n; ++i) h[i] = i % 3 == 0 ? 0 : i % 35 == 1 ? 50 * h[i] : h[i];
  return h;
}

// SumRows of the CPU for all the neurons of both sets.
std::vector<float> ReferenceSum(const Layer& layer, const std::vector<float>& h, int tokens,
                                const std::vector<std::uint16_t>& masks) {
  const std::vector<std::int32_t> ids = Set::ListOf(masks).first;
  std::vector<float> chosen, out(static_cast<std::size_t>(tokens * layer.cols));
  for (int t = 0; t < tokens; ++t) {
    for (const int id : ids) chosen.push_back(h[static_cast<std::size_t>(t * layer.neurons + id)]);
  }
  std::vector<std::uint8_t> scratch(kernels::SumScratchBytes(layer.cols));
  const kernels::OpTable* fast = kernels::CpuOps();
  (fast != nullptr ? *fast : kernels::ReferenceOps())
      .sum_rows({.weights = layer.here(),
                 .ids = ids.data(),
                 .count = static_cast<int>(ids.size()),
                 .h = chosen.data(),
                 .h_stride = static_cast<int>(ids.size()),
                 .tokens = tokens,
                 .col_begin = 0,
                 .col_end = layer.cols,
                 .out = out.data(),
                 .out_stride = layer.cols,
                 .scratch = scratch.data()});
  return out;
}

// One partition's buffers on the device.
struct Part {
  const Layer& layer;
  int tokens;
  Set set;
  Array<float> maxima, minimums, sums;
  Array<std::int32_t> high, low;

  Part(const DeviceOps& ops, const Layer& l, int t, const std::vector<std::uint16_t>& masks)
      : layer(l),
        tokens(t),
        set(ops, l.neurons),
        maxima(ops, Numbers(32)),
        minimums(ops, Numbers(32)),
        sums(ops, Numbers(1)),
        high(ops, Numbers(1)),
        low(ops, Numbers(1)) {
    set.Fill(masks);
    for (Array<float>* each : {&maxima, &minimums, &sums})
      each->Set(std::vector<float>(each->size(), 1e9F));  // left by the previous layer
    for (Array<std::int32_t>* each : {&high, &low})
      each->Set(std::vector<std::int32_t>(each->size(), 1 << 20));
  }
  std::size_t Numbers(int columns) const {
    return static_cast<std::size_t>(tokens * kernels::NumSumRuns(layer.neurons) *
                                    ((layer.cols + columns - 1) / columns));
  }
  kernels::DeviceSumRowsParams Params(const float* h) const {
    return {.weights = layer.there(),
            .neurons = set.view(),
            .h = h,
            .h_stride = layer.neurons,
            .tokens = tokens,
            .maxima = maxima,
            .high = high,
            .low = low,
            .minimums = minimums,
            .sums = sums};
  }
};

struct Shape {
  DType type;
  int neurons, cols, tokens, every;
  bool two;           // partitions
  bool once = false;  // in one launch
};

// The neurons of one of two partitions; all are in the first if there is only one.
std::vector<std::uint16_t> Half(const std::vector<std::uint16_t>& masks, bool first, bool two) {
  std::vector<std::uint16_t> half = masks;
  for (std::size_t i = 0; i < half.size(); ++i) {
    if (two ? (i % 7 < 3) != first : !first) half[i] = 0;
  }
  return half;
}

// Sets finish_sum's parameters for a part's sums.
void SetPart(const Part& part, DType type, int i, kernels::DeviceFinishSumParams& to) {
  if (!IsQuantized(type)) {
    to.sums[i] = part.sums;
    return;
  }
  to.high[i] = part.high;
  to.low[i] = part.low;
  to.minimums[i] = HasMinimums(type) ? part.minimums.get() : nullptr;
}

std::vector<float> DeviceSum(const DeviceOps& ops, const Layer& layer, const Shape& s,
                             const std::vector<std::uint16_t>& masks, const std::vector<float>& h,
                             const std::vector<float>& bias, const std::vector<float>& residual) {
  const Array<float> dh(ops, h), dbias(ops, bias);
  Array<float> out(ops, residual);
  const Part parts[2] = {{ops, layer, s.tokens, Half(masks, true, s.two)},
                         {ops, layer, s.tokens, Half(masks, false, s.two)}};
  const int count = s.two ? 2 : 1;
  kernels::DeviceFinishSumParams finish = {.neurons = layer.neurons,
                                           .cols = layer.cols,
                                           .tokens = s.tokens,
                                           .parts = count,
                                           .bias = dbias,
                                           .accumulate = true,
                                           .out = out,
                                           .out_stride = layer.cols};
  if (s.once) {
    finish.limits[0] = parts[0].maxima;
    SetPart(parts[0], layer.type, 0, finish);
    const Array<std::int32_t> tickets(
        ops,
        std::vector<std::int32_t>(
            static_cast<std::size_t>(s.tokens * kernels::DeviceDownRowsParams::Tickets(layer.cols)),
            0));
    for (int times = 0; times < 2; ++times) {  // the second run must find its tickets reset
      MustDo(ops,
             ops.sparse.down_rows(
                 {.sum = parts[0].Params(dh), .finish = finish, .tickets = tickets}, {}),
             "down_rows");
      if (times == 0) out.Set(residual);
    }
    return out.Get();
  }
  if (IsQuantized(layer.type)) {
    for (int i = 0; i < count; ++i) {
      MustDo(ops, ops.sparse.max_rows(parts[i].Params(dh), {}), "max_rows");
      finish.limits[i] = parts[i].maxima;
    }
  }
  for (int i = 0; i < count; ++i) {
    auto p = parts[i].Params(dh);
    p.limits[0] = finish.limits[0];
    p.limits[1] = finish.limits[1];
    MustDo(ops, ops.sparse.sum_rows(p, {}), "sum_rows");
    SetPart(parts[i], layer.type, i, finish);
  }
  MustDo(ops, ops.sparse.finish_sum(finish, {}), "finish_sum");
  return out.Get();
}

Check CheckSum(const DeviceOps& ops, const Shape& s) {
  const Layer layer(ops, s.type, s.neurons, s.cols, s.every == 1, 23);
  const auto masks = SomeMasks(layer.slots, s.tokens, s.every);
  const auto h = SparseH(static_cast<std::size_t>(s.tokens * s.neurons));
  const auto cols = static_cast<std::size_t>(s.cols);
  const auto bias = kernels::RandomFloats(cols, 2),
             residual = kernels::RandomFloats(cols * static_cast<std::size_t>(s.tokens), 3);
  const auto got = DeviceSum(ops, layer, s, masks, h, bias, residual);
  auto want = ReferenceSum(layer, h, s.tokens, masks);
  for (std::size_t i = 0; i < want.size(); ++i) want[i] = residual[i] + (want[i] + bias[i % cols]);
  Check check{s.two    ? "sum_rows of two partitions"
              : s.once ? "down_rows"
                       : "sum_rows",
              ShapeText(s.type, s.neurons, s.cols, s.tokens) + " 1/" + std::to_string(s.every)};
  if (IsQuantized(s.type) && !(s.two && HasMinimums(s.type))) {
    check.error = Differing(got, want);
    return check;
  }
  // Float sums in another order: relative to the sum of the absolute addends.
  check.tolerance = 1e-5;
  std::vector<double> size(want.size(), 1e-30);
  std::vector<float> row(cols);
  for (int r = 0; r < s.neurons; ++r) {
    if (masks[static_cast<std::size_t>(r)] == 0) continue;
    kernels::DequantizeMatrixRow(layer.here(), r, row.data());
    for (std::size_t i = 0; i < want.size(); ++i)
      size[i] += std::fabs(static_cast<double>(
          h[i / cols * static_cast<std::size_t>(s.neurons) + static_cast<std::size_t>(r)] *
          row[i % cols]));
  }
  for (std::size_t i = 0; i < want.size(); ++i)
    check.error = std::max(check.error,
                           std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i])) /
                               (size[i] + std::fabs(static_cast<double>(residual[i])) + 1));
  return check;
}

}  // namespace

std::vector<Check> CheckSumRows(const DeviceOps& ops, bool large) {
  std::vector<Check> checks;
  for (int t = 0; t < kernels::kNumDeviceDTypes; ++t) {
    const auto type = static_cast<DType>(t);
    if (!kernels::CanSumRows(type)) continue;
    const int block = kernels::Traits(type).block_size;
    const int cols = block == 1 ? 90 : block == 32 ? 608 : 768;
    for (const auto& [two, once] : {std::pair{false, false}, {true, false}, {false, true}}) {
      checks.push_back(CheckSum(ops, {type, 2300, cols, 3, 5, two, once}));
      checks.push_back(CheckSum(ops, {type, 37, block == 1 ? 5 : block, 1, 1, two, once}));
      if (IsQuantized(type)) {  // on the tensor cores
        checks.push_back(CheckSum(ops, {type, 1100, 256, 16, 20, two, once}));
        checks.push_back(CheckSum(ops, {type, 70, 512, 9, 1, two, once}));
        checks.push_back(CheckSum(ops, {type, 1025, 256, 5, 500, two, once}));
      }
      if (large) checks.push_back(CheckSum(ops, {type, 11008, 4096, 1, 10, two, once}));
    }
    checks.push_back(CheckSum(ops, {type, 1025, block == 1 ? 64 : block, 1, 5000, false}));
    if (!large) continue;
    checks.push_back(CheckSum(ops, {type, 11008, 4096, 4, 1, false}));
    checks.push_back(CheckSum(ops, {type, 11008, 4096, 16, 5, false, true}));
  }
  return checks;
}

}  // namespace thermocline::gpu
