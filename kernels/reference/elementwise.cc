// Scalar oracle of elementwise.h.
#include <cmath>

#include "kernels/reference/reference.h"

namespace thermocline::kernels::reference {
namespace {

// Sixteen chains added pairwise: the order of a vector's lanes.
float AddLanes(float lanes[16]) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

float Activate(const GatedParams& p, float x) {
  switch (p.activation) {
    case GateActivation::kSilu:
      return x / (1.0F + std::exp(-x));
    case GateActivation::kRelu:
    case GateActivation::kDRelu:
      return x > 0 ? x : 0.0F;
    case GateActivation::kFatRelu:
      return x >= p.threshold ? x : 0.0F;
    case GateActivation::kRelu2:
      return x > 0 ? x * x : 0.0F;
    case GateActivation::kGelu:
      return 0.5F * x * (1.0F + std::erf(x * std::sqrt(0.5F)));
    case GateActivation::kGeluTanh:
      return 0.5F * x * (1.0F + std::tanh(0.7978845608F * (x + 0.044715F * x * x * x)));
    case GateActivation::kXielu: {
      const Xielu& f = p.xielu;
      if (x > 0) return f.alpha_p * x * x + f.beta * x;
      return (std::expm1(std::fmin(x, f.eps)) - x) * f.alpha_n + f.beta * x;
    }
    case GateActivation::kClampedSwiglu:
      break;  // takes gate and up: ClampedSwiglu below
  }
  return x;
}

float ClampedSwiglu(float gate, float up) {
  const float g = std::fmin(gate, kSwigluLimit),
              u = std::fmax(std::fmin(up, kSwigluLimit), -kSwigluLimit);
  return g / (1.0F + std::exp(-kSwigluSlope * g)) * (u + 1.0F);
}

}  // namespace

void RmsNorm(const RmsNormParams& p) {
  float lanes[16] = {};
  for (int i = 0; i < p.n; ++i) lanes[i % 16] = std::fma(p.x[i], p.x[i], lanes[i % 16]);
  const float scale = 1.0F / std::sqrt(AddLanes(lanes) / static_cast<float>(p.n) + p.eps);
  for (int i = 0; i < p.n; ++i) p.out[i] = p.x[i] * scale * p.weight[i];
}

void LayerNorm(const LayerNormParams& p) {
  float lanes[16] = {};
  for (int i = 0; i < p.n; ++i) lanes[i % 16] += p.x[i];
  const float mean = AddLanes(lanes) / static_cast<float>(p.n);
  float squares[16] = {};
  for (int i = 0; i < p.n; ++i) {
    const float centred = p.x[i] - mean;
    squares[i % 16] = std::fma(centred, centred, squares[i % 16]);
  }
  const float scale = 1.0F / std::sqrt(AddLanes(squares) / static_cast<float>(p.n) + p.eps);
  for (int i = 0; i < p.n; ++i) {
    p.out[i] = (p.x[i] - mean) * scale * p.weight[i];
    if (p.bias != nullptr) p.out[i] += p.bias[i];
  }
}

void Rope(const RopeParams& p) {
  const int half = p.rope_dim / 2;
  for (int h = 0; h < p.heads; ++h) {
    float* x = p.x + h * p.head_dim;
    for (int i = 0; i < half; ++i) {
      float &first = x[p.halves ? i : 2 * i], &second = x[p.halves ? i + half : 2 * i + 1];
      const float a = first, b = second;
      first = a * p.cos[i] - b * p.sin[i];
      second = a * p.sin[i] + b * p.cos[i];
    }
  }
}

void Gated(const GatedParams& p) {
  for (int i = 0; i < p.n; ++i) {
    float up = p.up != nullptr ? p.up[i] : 1.0F;
    if (p.activation == GateActivation::kClampedSwiglu) {
      p.out[i] = ClampedSwiglu(p.gate[i], up);
      continue;
    }
    if (p.activation == GateActivation::kDRelu) up = up > 0 ? up : 0.0F;
    p.out[i] = Activate(p, p.gate[i]) * up;
  }
}

void Add(float* x, const float* y, int n) {
  for (int i = 0; i < n; ++i) x[i] += y[i];
}

void SoftCap(float* x, int n, float cap) {
  for (int i = 0; i < n; ++i) x[i] = cap * std::tanh(x[i] / cap);
}

void ToHalf(const float* x, int n, std::uint16_t* out) {
  for (int i = 0; i < n; ++i) out[i] = FloatToHalf(x[i]);
}

float SoftmaxExp(float* x, int n, float max) {
  float lanes[16] = {};
  for (int i = 0; i < n; ++i) {
    x[i] = std::exp(x[i] - max);
    lanes[i % 16] += x[i];
  }
  return AddLanes(lanes);
}

std::int64_t DotPeakOf(int rounds) {
  const volatile int level = 3, input = 5;
  int sum = 0;
  for (int i = 0; i < rounds; ++i) sum += level * input;
  [[maybe_unused]] const volatile int used = sum;
  return rounds;
}

}  // namespace thermocline::kernels::reference

namespace thermocline::kernels {

const OpTable& ReferenceOps() {
  using namespace reference;
  static constexpr OpTable kTable = {.name = "reference",
                                     .gemm = Gemm,
                                     .gemm_rows = GemmRows,
                                     .sum_rows = SumRows,
                                     .finish_sum = FinishSum,
                                     .sum_inputs = SumInputs,
                                     .sign_scores = SignScores,
                                     .quantize = Quantize,
                                     .attention = Attention,
                                     .rms_norm = RmsNorm,
                                     .layer_norm = LayerNorm,
                                     .rope = Rope,
                                     .gated = Gated,
                                     .short_conv = ShortConv,
                                     .recurrence = Recurrence,
                                     .add = Add,
                                     .soft_cap = SoftCap,
                                     .to_half = ToHalf,
                                     .softmax_exp = SoftmaxExp,
                                     .dot_peak = DotPeakOf};
  return kTable;
}

}  // namespace thermocline::kernels
