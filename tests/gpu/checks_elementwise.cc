// Checks norms, gates, sums and Q8 forms.
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
  constexpr const char* kNames[] = {"silu",  "relu", "fatrelu",   "drelu",
                                    "relu2", "gelu", "gelu tanh", "clamped swiglu"};
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
                     activation != GateActivation::kGeluTanh &&
                     activation != GateActivation::kClampedSwiglu;
  Check check{
      std::string("gated ") + kNames[static_cast<int>(activation)] + (has_up ? "" : ", no up"),
      Shape(tokens, n), exact ? 0 : 1e-6, 0};
  // 1 + erf and 1 + tanh cancel for negative gates, so the unit is at least |x up|.
  std::vector<double> unit(got.size());
  for (std::size_t i = 0; i < unit.size(); ++i)
    unit[i] =
        std::fabs(static_cast<double>(gate[i])) *
            (has_up ? std::fabs(static_cast<double>(up[i])) : 1) +
        (activation == GateActivation::kClampedSwiglu ? std::fabs(static_cast<double>(gate[i]))
                                                      : 0) +
        1e-30;
  check.error = exact ? Differing(got, want.x) : Farthest(got, want.x, unit);
  if (n % 32 == 0) {  // the Q8 form of the device's result
    const HostTokens own(tokens, n, got);
    if (const double q8 = DifferingQ8(out, own); q8 > 0) check.error = 1 + q8;
  }
  return check;
}

}  // namespace

std::vector<Check> CheckElementwise(const kernels::DeviceOps& ops) {
  std::vector<Check> checks;
  for (const int n : {1, 17, 64, 288, 4096, 4128, 8192, 9248}) {
    for (const int tokens : {1, 5}) {
      checks.push_back(CheckNorm(ops, tokens, n, true, false));
      checks.push_back(CheckNorm(ops, tokens, n, false, true));
      checks.push_back(CheckNorm(ops, tokens, n, false, false));
    }
    checks.push_back(CheckAdd(ops, n));
  }
  for (const int n : {32, 96, 4096}) checks.push_back(CheckQuantize(ops, 3, n));
  for (int a = 0; a <= static_cast<int>(GateActivation::kClampedSwiglu); ++a) {
    for (const int n : {33, 352}) {
      checks.push_back(CheckGated(ops, static_cast<GateActivation>(a), true, 3, n));
      checks.push_back(CheckGated(ops, static_cast<GateActivation>(a), false, 3, n));
    }
  }
  return checks;
}

}  // namespace thermocline::gpu
