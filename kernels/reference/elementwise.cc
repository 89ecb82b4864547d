// Scalar oracle of elementwise.h and attention.h.
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

float Activate(const GatedParams& p, float gate) {
  switch (p.activation) {
    case GateActivation::kSilu:
      return gate / (1.0F + std::exp(-gate));
    case GateActivation::kRelu:
      return gate > 0 ? gate : 0.0F;
    case GateActivation::kFatRelu:
      return gate >= p.threshold ? gate : 0.0F;
  }
  return gate;
}

}  // namespace

void RmsNorm(const RmsNormParams& p) {
  float lanes[16] = {};
  for (int i = 0; i < p.n; ++i) lanes[i % 16] = std::fma(p.x[i], p.x[i], lanes[i % 16]);
  const float scale = 1.0F / std::sqrt(AddLanes(lanes) / static_cast<float>(p.n) + p.eps);
  for (int i = 0; i < p.n; ++i) p.out[i] = p.x[i] * scale * p.weight[i];
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

void Gated(const GatedParams& p) {
  for (int i = 0; i < p.n; ++i) p.out[i] = Activate(p, p.gate[i]) * p.up[i];
}

void Add(float* x, const float* y, int n) {
  for (int i = 0; i < n; ++i) x[i] += y[i];
}

void ToHalf(const float* x, int n, std::uint16_t* out) {
  for (int i = 0; i < n; ++i) out[i] = FloatToHalf(x[i]);
}

float SoftmaxExp(float* x, int n, float max, float scale) {
  float lanes[16] = {};
  for (int i = 0; i < n; ++i) {
    x[i] = std::exp(scale * (x[i] - max));
    lanes[i % 16] += x[i];
  }
  return AddLanes(lanes);
}

void Attention(const AttentionParams& p) {
  float max = -INFINITY;
  for (int s = 0; s < p.cached_tokens; ++s) {
    float dot = 0;
    for (int i = 0; i < p.head_dim; ++i) dot += p.q[i] * HalfToFloat(p.k[s * p.stride + i]);
    p.scores[s] = dot;
    max = dot > max ? dot : max;
  }
  const float total = SoftmaxExp(p.scores, p.cached_tokens, max, p.scale);
  for (int i = 0; i < p.head_dim; ++i) {
    float sum = 0;
    for (int s = 0; s < p.cached_tokens; ++s)
      sum += p.scores[s] * HalfToFloat(p.v[s * p.stride + i]);
    p.out[i] = sum / total;
  }
}

}  // namespace thermocline::kernels::reference

namespace thermocline::kernels {

const OpTable& ReferenceOps() {
  using namespace reference;
  static constexpr OpTable kTable = {"reference", Gemm,  Quantize, Attention, RmsNorm,
                                     Rope,        Gated, Add,      ToHalf,    SoftmaxExp};
  return kTable;
}

}  // namespace thermocline::kernels
