// elementwise.h and the activations of quantize.h on sixteen lanes.
#include <cstring>

#include "kernels/elementwise.h"
#include "kernels/quantize.h"

namespace thermocline::kernels {
namespace {

// exp by range reduction to [-ln2/2, ln2/2] and a polynomial of degree 6; relative error below 2e-7
// on [-87, 88], which a test measures. Clamped outside. Source: Cephes' expf, coefficients by
// Taylor.
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

// Loads up to 16 floats, followed by zeros.
inline F32x16 LoadPartial(const float* x, int n) {
  if (n == 16) return LoadF32(x);
  float lanes[16] = {};
  for (int i = 0; i < n; ++i) lanes[i] = x[i];
  return LoadF32(lanes);
}
inline void StorePartial(float* x, int n, F32x16 v) {
  if (n == 16) return Store(x, v);
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

inline F32x16 SumChains(const float* x, int n) {
  F32x16 sum = ZeroF();
  int i = 0;
  for (; i + 16 <= n; i += 16) sum = AddF(sum, LoadF32(x + i));
  return i < n ? AddF(sum, LoadPartial(x + i, n - i)) : sum;
}

void LayerNorm(const LayerNormParams& p) {
  const float mean = SumLanes(SumChains(p.x, p.n)) / static_cast<float>(p.n);
  float squares[16] = {};
  F32x16 sum = ZeroF();
  int i = 0;
  for (; i + 16 <= p.n; i += 16) {
    const F32x16 centred = SubF(LoadF32(p.x + i), Set1(mean));
    sum = Fma(centred, centred, sum);
  }
  Store(squares, sum);
  for (; i < p.n; ++i)
    squares[i % 16] = __builtin_fmaf(p.x[i] - mean, p.x[i] - mean, squares[i % 16]);
  const float variance = SumLanes(LoadF32(squares)) / static_cast<float>(p.n);
  const float scale = 1.0F / __builtin_sqrtf(variance + p.eps);
  ForLanes(
      p.n,
      [&](int j) {
        const F32x16 y =
            MulF(MulF(SubF(LoadF32(p.x + j), Set1(mean)), Set1(scale)), LoadF32(p.weight + j));
        Store(p.out + j, p.bias != nullptr ? AddF(y, LoadF32(p.bias + j)) : y);
      },
      [&](int j) {
        const float y = (p.x[j] - mean) * scale * p.weight[j];
        p.out[j] = p.bias != nullptr ? y + p.bias[j] : y;
      });
}

// Rotates x[i] with x[i + half]: whole vectors.
inline void RotateHalves(float* x, int half, const float* cos, const float* sin) {
  ForLanes(
      half,
      [&](int i) {
        const F32x16 a = LoadF32(x + i), b = LoadF32(x + i + half);
        const F32x16 c = LoadF32(cos + i), s = LoadF32(sin + i);
        Store(x + i, SubF(MulF(a, c), MulF(b, s)));
        Store(x + i + half, AddF(MulF(a, s), MulF(b, c)));
      },
      [&](int i) {
        const float a = x[i], b = x[i + half];
        x[i] = a * cos[i] - b * sin[i];
        x[i + half] = a * sin[i] + b * cos[i];
      });
}

void Rope(const RopeParams& p) {
  for (int h = 0; h < p.heads; ++h) {
    float* x = p.x + h * p.head_dim;
    if (p.halves) {
      RotateHalves(x, p.rope_dim / 2, p.cos, p.sin);
      continue;
    }
    for (int i = 0; i < p.rope_dim / 2; ++i) {
      const float a = x[2 * i], b = x[2 * i + 1];
      x[2 * i] = a * p.cos[i] - b * p.sin[i];
      x[2 * i + 1] = a * p.sin[i] + b * p.cos[i];
    }
  }
}

inline F32x16 Sigmoid(F32x16 x) {
  return DivF(Set1(1.0F), AddF(Set1(1.0F), Exp(SubF(ZeroF(), x))));
}

// cap tanh(x / cap) = cap (1 - 2 sigmoid(-2 x / cap)); absolute error below 2e-7 cap.
inline F32x16 Capped(F32x16 x, F32x16 cap, F32x16 slope) {
  return MulF(cap, SubF(Set1(1.0F), MulF(Set1(2.0F), Sigmoid(MulF(x, slope)))));
}

void SoftCap(float* x, int n, float cap) {
  const F32x16 limit = Set1(cap), slope = Set1(-2.0F / cap);
  int i = 0;
  for (; i + 16 <= n; i += 16) Store(x + i, Capped(LoadF32(x + i), limit, slope));
  if (i < n) StorePartial(x + i, n - i, Capped(LoadPartial(x + i, n - i), limit, slope));
}

// 1 + erf(x / sqrt(2)), absolute error below 2e-7. Source: Abramowitz and Stegun 7.1.26.
inline F32x16 OnePlusErf(F32x16 x) {
  const F32x16 z = MulF(AbsF(x), Set1(0.70710678F));
  const F32x16 t = DivF(Set1(1.0F), Fma(z, Set1(0.3275911F), Set1(1.0F)));
  F32x16 p = Set1(1.061405429F);
  constexpr float kCoefficients[] = {-1.453152027F, 1.421413741F, -0.284496736F, 0.254829592F};
  for (const float c : kCoefficients) p = Fma(p, t, Set1(c));
  const F32x16 rest = MulF(MulF(p, t), Exp(SubF(ZeroF(), MulF(z, z))));  // 1 - erf(z)
  return SelectAtLeast(x, ZeroF(), SubF(Set1(2.0F), rest), rest);
}

// min(x, limit), made of operations that every ISA has.
inline F32x16 AtMost(F32x16 x, float limit) {
  return SubF(ZeroF(), MaxF(SubF(ZeroF(), x), Set1(-limit)));
}

inline F32x16 XieluOf(const Xielu& f, F32x16 x) {
  const F32x16 linear = MulF(Set1(f.beta), x);
  const F32x16 above = Fma(MulF(Set1(f.alpha_p), x), x, linear);
  const F32x16 grown = SubF(SubF(Exp(AtMost(x, f.eps)), Set1(1.0F)), x);
  return SelectAtLeast(x, ZeroF(), above, Fma(Set1(f.alpha_n), grown, linear));
}

inline F32x16 Activate(const GatedParams& p, F32x16 x) {
  switch (p.activation) {
    case GateActivation::kRelu:
    case GateActivation::kDRelu:
      return MaxF(x, ZeroF());
    case GateActivation::kFatRelu:
      return KeepAtLeast(x, Set1(p.threshold));
    case GateActivation::kRelu2: {
      const F32x16 positive = MaxF(x, ZeroF());
      return MulF(positive, positive);
    }
    case GateActivation::kGelu:
      return MulF(MulF(Set1(0.5F), x), OnePlusErf(x));
    case GateActivation::kGeluTanh: {  // 0.5 (1 + tanh(u)) = sigmoid(2u)
      const F32x16 cubic = MulF(MulF(x, x), MulF(x, Set1(0.044715F)));
      return MulF(x, Sigmoid(MulF(AddF(x, cubic), Set1(1.5957691216F))));
    }
    case GateActivation::kXielu:
      return XieluOf(p.xielu, x);
    default:
      return DivF(x, AddF(Set1(1.0F), Exp(SubF(ZeroF(), x))));
  }
}

inline F32x16 ClampedSwiglu(F32x16 gate, F32x16 up) {
  const F32x16 g = AtMost(gate, kSwigluLimit);
  const F32x16 u = MaxF(AtMost(up, kSwigluLimit), Set1(-kSwigluLimit));
  return MulF(MulF(g, Sigmoid(MulF(g, Set1(kSwigluSlope)))), AddF(u, Set1(1.0F)));
}

inline F32x16 Gate(const GatedParams& p, F32x16 gate, F32x16 up) {
  if (p.activation == GateActivation::kClampedSwiglu) return ClampedSwiglu(gate, up);
  if (p.activation == GateActivation::kDRelu) up = MaxF(up, ZeroF());
  return MulF(Activate(p, gate), up);
}

void Gated(const GatedParams& p) {
  int i = 0;
  for (; i + 16 <= p.n; i += 16)
    Store(p.out + i, Gate(p, LoadF32(p.gate + i), p.up ? LoadF32(p.up + i) : Set1(1.0F)));
  const int rest = p.n - i;
  if (rest > 0) {
    StorePartial(
        p.out + i, rest,
        Gate(p, LoadPartial(p.gate + i, rest), p.up ? LoadPartial(p.up + i, rest) : Set1(1.0F)));
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

float SoftmaxExp(float* x, int n, float max) {
  const F32x16 m = Set1(max);
  F32x16 sum = ZeroF();
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    const F32x16 e = Exp(SubF(LoadF32(x + i), m));
    Store(x + i, e);
    sum = AddF(sum, e);
  }
  if (i < n) {
    StorePartial(x + i, n - i, Exp(SubF(LoadPartial(x + i, n - i), m)));
    sum = AddF(sum, LoadPartial(x + i, n - i));
  }
  return SumLanes(sum);
}

// The sums of pairs of 16 columns: of every first two of four, and of every last two. All bytes at
// once, in words of 16 bits, counted from -128 on so that no word borrows from the next.
struct PairSums {
  std::int32_t low, high;
};
inline PairSums SumPairs(const std::int8_t* q) {
  constexpr std::uint64_t kBias = 0x8080808080808080U, kEven = 0x00FF00FF00FF00FFU;
  std::uint64_t words = 0;
  for (int i = 0; i < 16; i += 8) {
    std::uint64_t bytes;
    std::memcpy(&bytes, q + i, sizeof(bytes));
    bytes ^= kBias;
    words += (bytes & kEven) + (bytes >> 8 & kEven);
  }
  words += words >> 32;
  constexpr std::int32_t kCounted = 8 * 128;
  return {static_cast<std::int32_t>(words & 0xFFFF) - kCounted,
          static_cast<std::int32_t>(words >> 16 & 0xFFFF) - kCounted};
}

void Quantize(const QuantizeParams& p) {
  for (int b = 0; b < p.n / kActivationBlock; ++b) {
    const F32x16 lo = LoadF32(p.x + 32 * b), hi = LoadF32(p.x + 32 * b + 16);
    const float max = MaxLanes(MaxF(AbsF(lo), AbsF(hi)));
    const F32x16 inverse = Set1(max > kActivationMin ? 127.0F / max : 0.0F);
    StoreI8(p.q + 32 * b, MulF(lo, inverse));
    StoreI8(p.q + 32 * b + 16, MulF(hi, inverse));
    p.scale[b] = max / 127.0F;
    const PairSums first = SumPairs(p.q + 32 * b), second = SumPairs(p.q + 32 * b + 16);
    p.half_sum[b] = first.low + first.high;
    p.sum[b] = p.half_sum[b] + second.low + second.high;
    p.scaled_sum[b] = Scaled(p.scale[b], p.sum[b]);
    // A word of each (kernels/types.h): eight values do not overflow it.
    p.pair_sum[2 * b] = (first.low & 0xFFFF) | first.high * 0x10000;
    p.pair_sum[2 * b + 1] = (second.low & 0xFFFF) | second.high * 0x10000;
  }
}

}  // namespace
}  // namespace thermocline::kernels
