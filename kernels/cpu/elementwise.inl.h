// elementwise.h, attention.h and the activations of quantize.h on sixteen lanes.
#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/quantize.h"

namespace thermocline::kernels {
namespace {

// exp by range reduction to [-ln2/2, ln2/2] and a polynomial of degree 6; relative error below 2e-7
// on
// [-87, 88], which a test measures. Clamped outside. Source: Cephes' expf, coefficients by Taylor.
inline F32x16 Exp(F32x16 x) {
  x = MinF(MaxF(x, Set1(-87.3F)), Set1(88.0F));
  const F32x16 n = RoundF(MulF(x, Set1(1.44269504F)));
  F32x16 r = Fma(n, Set1(-0.693359375F), x);
  r = Fma(n, Set1(2.12194440e-4F), r);
  F32x16 p = Set1(1.0F / 720);
  constexpr float kCoefficients[] = {1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F, 1.0F, 1.0F};
  for (const float c : kCoefficients) p = Fma(p, r, Set1(c));
  return MulF(p, PowerOfTwo(n));
}

// Calls body(i) for whole vectors, then tail(i) for the rest.
template <typename Body, typename Tail>
inline void ForLanes(int n, const Body& body, const Tail& tail) {
  int i = 0;
  for (; i + 16 <= n; i += 16) body(i);
  for (; i < n; ++i) tail(i);
}

// Loads up to 16 floats, zeros behind.
inline F32x16 LoadPartial(const float* x, int n) {
  float lanes[16] = {};
  for (int i = 0; i < n; ++i) lanes[i] = x[i];
  return LoadF32(lanes);
}
inline void StorePartial(float* x, int n, F32x16 v) {
  float lanes[16];
  Store(lanes, v);
  for (int i = 0; i < n; ++i) x[i] = lanes[i];
}

void RmsNorm(const RmsNormParams& p) {
  F32x16 sum = ZeroF();
  int i = 0;
  for (; i + 16 <= p.n; i += 16) {
    const F32x16 x = LoadF32(p.x + i);
    sum = Fma(x, x, sum);
  }
  if (i < p.n) {
    const F32x16 x = LoadPartial(p.x + i, p.n - i);
    sum = Fma(x, x, sum);
  }
  const float scale = 1.0F / __builtin_sqrtf(SumLanes(sum) / static_cast<float>(p.n) + p.eps);
  ForLanes(
      p.n,
      [&](int j) {
        Store(p.out + j, MulF(MulF(LoadF32(p.x + j), Set1(scale)), LoadF32(p.weight + j)));
      },
      [&](int j) { p.out[j] = p.x[j] * scale * p.weight[j]; });
}

void Rope(const RopeParams& p) {
  for (int h = 0; h < p.heads; ++h) {
    float* x = p.x + h * p.head_dim;
    for (int i = 0; i < p.rope_dim / 2; ++i) {
      const float a = x[2 * i], b = x[2 * i + 1];
      x[2 * i] = a * p.cos[i] - b * p.sin[i];
      x[2 * i + 1] = a * p.sin[i] + b * p.cos[i];
    }
  }
}

inline F32x16 Activate(const GatedParams& p, F32x16 gate) {
  switch (p.activation) {
    case GateActivation::kRelu:
      return MaxF(gate, ZeroF());
    case GateActivation::kFatRelu:
      return KeepAtLeast(gate, Set1(p.threshold));
    default:
      return DivF(gate, AddF(Set1(1.0F), Exp(SubF(ZeroF(), gate))));
  }
}

void Gated(const GatedParams& p) {
  int i = 0;
  for (; i + 16 <= p.n; i += 16)
    Store(p.out + i, MulF(Activate(p, LoadF32(p.gate + i)), LoadF32(p.up + i)));
  const int rest = p.n - i;
  if (rest > 0) {
    StorePartial(p.out + i, rest,
                 MulF(Activate(p, LoadPartial(p.gate + i, rest)), LoadPartial(p.up + i, rest)));
  }
}

void Add(float* x, const float* y, int n) {
  ForLanes(
      n, [&](int i) { Store(x + i, AddF(LoadF32(x + i), LoadF32(y + i))); },
      [&](int i) { x[i] += y[i]; });
}

void ToHalf(const float* x, int n, std::uint16_t* out) {
  ForLanes(
      n, [&](int i) { StoreF16(out + i, LoadF32(x + i)); },
      [&](int i) { out[i] = FloatToHalf(x[i]); });
}

float SoftmaxExp(float* x, int n, float max, float scale) {
  const F32x16 m = Set1(max), s = Set1(scale);
  F32x16 sum = ZeroF();
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    const F32x16 e = Exp(MulF(s, SubF(LoadF32(x + i), m)));
    Store(x + i, e);
    sum = AddF(sum, e);
  }
  if (i < n) {
    StorePartial(x + i, n - i, Exp(MulF(s, SubF(LoadPartial(x + i, n - i), m))));
    sum = AddF(sum, LoadPartial(x + i, n - i));
  }
  return SumLanes(sum);
}

void Quantize(const QuantizeParams& p) {
  for (int b = 0; b < p.n / kActivationBlock; ++b) {
    const F32x16 lo = LoadF32(p.x + 32 * b), hi = LoadF32(p.x + 32 * b + 16);
    const float max = MaxLanes(MaxF(AbsF(lo), AbsF(hi)));
    const F32x16 inverse = Set1(max > 0 ? 127.0F / max : 0.0F);
    const F32x16 qlo = MulF(lo, inverse), qhi = MulF(hi, inverse);
    StoreI8(p.q + 32 * b, qlo);
    StoreI8(p.q + 32 * b + 16, qhi);
    p.scale[b] = max / 127.0F;
    p.sum[b] = SumLanesI(AddI(RoundI(qlo), RoundI(qhi)));
  }
}

// Two passes over the cache: scores, then the weighted sum, 16 columns at a time.
void Attention(const AttentionParams& p) {
  alignas(64) float q[kHeadDimMax] = {};
  for (int i = 0; i < p.head_dim; ++i) q[i] = p.q[i];
  float max = -__builtin_inff();
  for (int s = 0; s < p.cached_tokens; ++s) {
    const std::uint16_t* k = p.k + static_cast<std::ptrdiff_t>(s) * p.stride;
    F32x16 dot = ZeroF();
    for (int i = 0; i < p.stride; i += 16) dot = Fma(LoadF16(k + i), LoadF32(q + i), dot);
    p.scores[s] = SumLanes(dot);
    max = p.scores[s] > max ? p.scores[s] : max;
  }
  const F32x16 inverse = Set1(1.0F / SoftmaxExp(p.scores, p.cached_tokens, max, p.scale));
  for (int i = 0; i < p.stride; i += 16) {
    F32x16 even = ZeroF(), odd = ZeroF();
    const std::uint16_t* v = p.v + i;
    int s = 0;
    for (; s + 2 <= p.cached_tokens; s += 2, v += 2 * p.stride) {
      even = Fma(LoadF16(v), Set1(p.scores[s]), even);
      odd = Fma(LoadF16(v + p.stride), Set1(p.scores[s + 1]), odd);
    }
    if (s < p.cached_tokens) even = Fma(LoadF16(v), Set1(p.scores[s]), even);
    const F32x16 out = MulF(AddF(even, odd), inverse);
    if (i + 16 <= p.head_dim) {
      Store(p.out + i, out);
    } else {
      StorePartial(p.out + i, p.head_dim - i, out);
    }
  }
}

}  // namespace
}  // namespace thermocline::kernels
