// Norms, gates, sums and Q8 forms; embedding; the largest logits.
#include "tests/gpu/checks_dense.h"
#include "tests/gpu/dense_inputs.h"

namespace thermocline::gpu {
namespace {

using kernels::DType;
using kernels::GateActivation;

std::string Shape(int tokens, int n) {
  return "T" + std::to_string(tokens) + " n" + std::to_string(n);
}

Check CheckNorm(const kernels::DeviceOps& ops, int tokens, int n, bool rms, bool bias) {
  const auto x = kernels::RandomFloats(Elements(tokens, n), 3, 2);
  const auto weight = kernels::RandomFloats(static_cast<std::size_t>(n), 4),
             b = kernels::RandomFloats(static_cast<std::size_t>(n), 5);
  HostTokens want(tokens, n, x);
  for (int t = 0; t < tokens; ++t) {
    const float* from = x.data() + Elements(t, n);
    float* to = want.x.data() + Elements(t, n);
    if (rms) {
      kernels::ReferenceOps().rms_norm({from, weight.data(), n, 1e-5F, to});
    } else {
      kernels::ReferenceOps().layer_norm(
          {from, weight.data(), bias ? b.data() : nullptr, n, 1e-5F, to});
    }
  }
  want.Quantize();
  const Array<float> dx(ops, x), dw(ops, weight), db(ops, b);
  const DeviceTokens out(ops, tokens, n);
  const bool q8 = n % 32 == 0;
  MustDo(ops,
         ops.dense.norm({.x = dx,
                         .weight = dw,
                         .bias = bias ? db.get() : nullptr,
                         .rms = rms,
                         .n = n,
                         .tokens = tokens,
                         .eps = 1e-5F,
                         .out = out.view(q8)},
                        {}),
         "norm");
  Wait(ops);
  double error = Differing(out.x.Get(), want.x);
  if (q8) error += DifferingQ8(out, want);
  return {rms ? "rms norm" : bias ? "layer norm, bias" : "layer norm", Shape(tokens, n), 0, error};
}

Check CheckQuantize(const kernels::DeviceOps& ops, int tokens, int n) {
  auto values = kernels::RandomFloats(Elements(tokens, n), 3, 2);
  std::fill_n(values.begin(), 32, 0.0F);
  if (values.size() >= 64) std::fill_n(values.begin() + 32, 32, 1e-31F);
  HostTokens x(tokens, n, values), rest(tokens, n, values);
  for (std::size_t i = 0; i < values.size(); ++i)
    rest.x[i] = values[i] - x.scale[i / 32] * static_cast<float>(x.q[i]);
  rest.Quantize();
  const auto join = [](auto a, const auto& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  HostTokens both(2 * tokens, n, join(x.x, rest.x));
  DeviceTokens device(ops, 2 * tokens, n);
  device.x.Set(values);
  MustDo(ops, ops.dense.quantize({.x = device.view(), .tokens = tokens, .with_rest = true}, {}),
         "quantize");
  Wait(ops);
  return {"quantize with rest", Shape(tokens, n), 0,
          Differing(device.x.Get(), both.x) + DifferingQ8(device, both)};
}

Check CheckAdd(const kernels::DeviceOps& ops, int n) {
  auto x = kernels::RandomFloats(static_cast<std::size_t>(n), 3);
  const auto y = kernels::RandomFloats(static_cast<std::size_t>(n), 4);
  const Array<float> dx(ops, x), dy(ops, y);
  kernels::ReferenceOps().add(x.data(), y.data(), n);
  MustDo(ops, ops.dense.add({dx, dy, n}, {}), "add");
  Wait(ops);
  return {"add", Shape(1, n), 0, Differing(dx.Get(), x)};
}

Check CheckGated(const kernels::DeviceOps& ops, GateActivation activation, bool has_up, int tokens,
                 int n) {
  constexpr const char* kNames[] = {"silu",  "relu", "fatrelu",  "drelu",
                                    "relu2", "gelu", "gelu tanh"};
  const auto gate = kernels::RandomFloats(Elements(tokens, n), 3, 3),
             up = kernels::RandomFloats(Elements(tokens, n), 4);
  HostTokens want(tokens, n, gate);
  kernels::ReferenceOps().gated({.gate = gate.data(),
                                 .up = has_up ? up.data() : nullptr,
                                 .n = tokens * n,
                                 .activation = activation,
                                 .threshold = 0.5F,
                                 .out = want.x.data()});
  const Array<float> dgate(ops, gate), dup(ops, up);
  const DeviceTokens out(ops, tokens, n);
  MustDo(ops,
         ops.dense.gated({.gate = dgate,
                          .up = has_up ? dup.get() : nullptr,
                          .n = n,
                          .tokens = tokens,
                          .activation = activation,
                          .threshold = 0.5F,
                          .out = out.view(n % 32 == 0)},
                         {}),
         "gated");
  Wait(ops);
  const auto got = out.x.Get();
  const bool exact = activation != GateActivation::kSilu && activation != GateActivation::kGelu &&
                     activation != GateActivation::kGeluTanh;
  Check check{
      std::string("gated ") + kNames[static_cast<int>(activation)] + (has_up ? "" : ", no up"),
      Shape(tokens, n), exact ? 0 : 1e-6, 0};
  // 1 + erf and 1 + tanh cancel for negative gates: the unit is |x up| at least.
  std::vector<double> unit(got.size());
  for (std::size_t i = 0; i < unit.size(); ++i)
    unit[i] = std::fabs(static_cast<double>(gate[i])) *
                  (has_up ? std::fabs(static_cast<double>(up[i])) : 1) +
              1e-30;
  check.error = exact ? Differing(got, want.x) : Farthest(got, want.x, unit);
  if (n % 32 == 0) {  // the Q8 form of what the device computed
    const HostTokens own(tokens, n, got);
    if (const double q8 = DifferingQ8(out, own); q8 > 0) check.error = 1 + q8;
  }
  return check;
}

Check CheckEmbedding(const kernels::DeviceOps& ops, DType type, bool positions) {
  const int rows = 37, cols = std::max(96, kernels::Traits(type).block_size), context = 19;
  const auto packed = kernels::Pack(type, kernels::RandomRows(type, rows, cols, 3), rows, cols),
             learned =
                 kernels::Pack(type, kernels::RandomRows(type, context, cols, 4), context, cols);
  const std::vector<int> ids = {0, 36, 17, 17, -1, 37};
  const int tokens = static_cast<int>(ids.size()), position = 5, offset = 2;
  std::vector<float> want(Elements(tokens, cols)), row(static_cast<std::size_t>(cols));
  for (int t = 0; t < tokens; ++t) {
    float* to = want.data() + Elements(t, cols);
    const int id = ids[static_cast<std::size_t>(t)];
    if (id >= 0 && id < rows)
      kernels::DequantizePackedRow({type, rows, cols, packed.data()}, id, to);
    if (!positions) continue;
    kernels::DequantizePackedRow({type, context, cols, learned.data()}, position + t + offset,
                                 row.data());
    kernels::ReferenceOps().add(to, row.data(), cols);
  }
  const Array<std::uint8_t> table(ops, packed), dlearned(ops, learned);
  const Array<int> dids(ops, ids), dposition(ops, std::vector<int>{position});
  const Array<float> out(ops, want.size());
  MustDo(ops,
         ops.dense.embed({.table = {type, rows, cols, table},
                          .ids = dids,
                          .positions = {type, context, cols, positions ? dlearned.get() : nullptr},
                          .position = dposition,
                          .position_offset = offset,
                          .tokens = tokens,
                          .out = out},
                         {}),
         "embed");
  Wait(ops);
  return {positions ? "embed with positions" : "embed",
          std::string(kernels::Traits(type).name) + " " + std::to_string(rows) + "x" +
              std::to_string(cols),
          0, Differing(out.Get(), want)};
}

Check CheckTop(const kernels::DeviceOps& ops, int tokens, int n, int k, bool ties) {
  auto logits = kernels::RandomFloats(Elements(tokens, n), 3, 3);
  if (ties) {
    for (float& x : logits) x = std::floor(x);
    logits[0] = -INFINITY;
  }
  std::vector<int> ids;
  std::vector<float> values, sums;
  std::vector<double> units;
  for (int t = 0; t < tokens; ++t) {
    const float* x = logits.data() + Elements(t, n);
    std::vector<int> order(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) order[static_cast<std::size_t>(i)] = i;
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return x[a] > x[b]; });
    for (int i = 0; i < k; ++i) {
      ids.push_back(order[static_cast<std::size_t>(i)]);
      values.push_back(x[ids.back()]);
    }
    double sum = 0;
    for (int i = 0; i < n; ++i) sum += std::exp(static_cast<double>(x[i]));
    sums.push_back(static_cast<float>(std::log(sum)));
    units.push_back(std::max(1.0, std::fabs(std::log(sum))));
  }
  const Array<float> dlogits(ops, logits), dvalues(ops, values.size()), dsums(ops, sums.size());
  const Array<int> dids(ops, ids.size());
  const Array<std::uint8_t> scratch(ops, kernels::TopKScratchBytes(tokens, k));
  MustDo(ops,
         ops.dense.top_k({.logits = dlogits,
                          .n = n,
                          .tokens = tokens,
                          .k = k,
                          .values = dvalues,
                          .ids = dids,
                          .log_sum_exp = dsums,
                          .scratch = scratch.get()},
                         {}),
         "top_k");
  Wait(ops);
  const double wrong = Differing(dids.Get(), ids) + Differing(dvalues.Get(), values);
  return {ties ? "top k, ties" : "top k", Shape(tokens, n) + " k" + std::to_string(k), 1e-6,
          wrong + Farthest(dsums.Get(), sums, units)};
}

}  // namespace

std::vector<Check> CheckElementwise(const kernels::DeviceOps& ops) {
  std::vector<Check> checks;
  for (const int n : {1, 17, 64, 288, 4096, 4128, 8192}) {
    for (const int tokens : {1, 5}) {
      checks.push_back(CheckNorm(ops, tokens, n, true, false));
      checks.push_back(CheckNorm(ops, tokens, n, false, true));
      checks.push_back(CheckNorm(ops, tokens, n, false, false));
    }
    checks.push_back(CheckAdd(ops, n));
  }
  for (const int n : {32, 96, 4096}) checks.push_back(CheckQuantize(ops, 3, n));
  for (int a = 0; a <= static_cast<int>(GateActivation::kGeluTanh); ++a) {
    for (const int n : {33, 352}) {
      checks.push_back(CheckGated(ops, static_cast<GateActivation>(a), true, 3, n));
      checks.push_back(CheckGated(ops, static_cast<GateActivation>(a), false, 3, n));
    }
  }
  return checks;
}

std::vector<Check> CheckEmbed(const kernels::DeviceOps& ops) {
  std::vector<Check> checks;
  for (int i = 0; i < kernels::kNumNativeDTypes; ++i) {
    checks.push_back(CheckEmbedding(ops, static_cast<DType>(i), false));
    checks.push_back(CheckEmbedding(ops, static_cast<DType>(i), true));
  }
  return checks;
}

std::vector<Check> CheckTopK(const kernels::DeviceOps& ops, bool large) {
  std::vector<Check> checks;
  for (const bool ties : {false, true}) {
    for (const int k : {1, 2, 40, 256}) {
      checks.push_back(CheckTop(ops, 2, std::max(k, 7), k, ties));
      checks.push_back(CheckTop(ops, 2, 4099, k, ties));
      if (large) checks.push_back(CheckTop(ops, 3, 151936, k, ties));
    }
  }
  return checks;
}

}  // namespace thermocline::gpu
