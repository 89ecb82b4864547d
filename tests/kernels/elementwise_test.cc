// Tolerances: ops without a transcendental function give the reference's bits; those with exp are
// within 2e-6 relative (the polynomial's error is below 3e-7, sums add a few roundings).
#include <cmath>

#include "tests/kernels/tables.h"

namespace thermocline::kernels {
namespace {

constexpr float kExpTolerance = 2e-6F;

TEST(Elementwise, RmsNormGivesTheReferencesBits) {
  for (const OpTable* ops : FastTables()) {
    for (const int n : {1, 15, 16, 17, 64, 570, 571, 572, 573, 574, 575, 576}) {
      const auto x = RandomFloats(static_cast<std::size_t>(n), static_cast<unsigned>(n)),
                 weight = RandomFloats(static_cast<std::size_t>(n), 2);
      std::vector<float> expected(x.size()), got(x.size());
      ReferenceOps().rms_norm({x.data(), weight.data(), n, 1e-5F, expected.data()});
      ops->rms_norm({x.data(), weight.data(), n, 1e-5F, got.data()});
      EXPECT_EQ(got, expected) << ops->name << " n=" << n;
    }
  }
}

TEST(Elementwise, AddRopeAndHalvesGiveTheReferencesBits) {
  for (const OpTable* ops : FastTables()) {
    const int n = 70;
    const auto y = RandomFloats(n, 3), angles = RandomFloats(n, 4);
    auto a = RandomFloats(n, 5), b = a;
    ReferenceOps().add(a.data(), y.data(), n);
    ops->add(b.data(), y.data(), n);
    EXPECT_EQ(a, b);
    std::vector<float> cos, sin;
    for (const float angle : angles) {
      cos.push_back(std::cos(angle));
      sin.push_back(std::sin(angle));
    }
    ReferenceOps().rope({a.data(), 7, 10, 6, cos.data(), sin.data()});
    ops->rope({b.data(), 7, 10, 6, cos.data(), sin.data()});
    EXPECT_EQ(a, b);
    std::vector<std::uint16_t> half_a(n), half_b(n);
    ReferenceOps().to_half(a.data(), n, half_a.data());
    ops->to_half(b.data(), n, half_b.data());
    EXPECT_EQ(half_a, half_b);
  }
}

TEST(Elementwise, LayerNormAndRotatedHalvesGiveTheReferencesBits) {
  for (const OpTable* ops : FastTables()) {
    for (const int n : {1, 15, 16, 33, 80}) {
      const auto size = static_cast<std::size_t>(n);
      const auto x = RandomFloats(size, 1), weight = RandomFloats(size, 2),
                 bias = RandomFloats(size, 3);
      for (const float* b : {static_cast<const float*>(nullptr), bias.data()}) {
        std::vector<float> expected(size), got(size);
        ReferenceOps().layer_norm({x.data(), weight.data(), b, n, 1e-5F, expected.data()});
        ops->layer_norm({x.data(), weight.data(), b, n, 1e-5F, got.data()});
        EXPECT_EQ(got, expected) << ops->name << " n=" << n;
      }
    }
    for (const int rope_dim : {6, 64, 70}) {
      auto a = RandomFloats(3 * 72, 5), b = a;
      const auto cos = RandomFloats(36, 6), sin = RandomFloats(36, 7);
      ReferenceOps().rope({a.data(), 3, 72, rope_dim, cos.data(), sin.data(), true});
      ops->rope({b.data(), 3, 72, rope_dim, cos.data(), sin.data(), true});
      EXPECT_EQ(a, b) << ops->name << " rope_dim " << rope_dim;
    }
  }
}

struct ActivationCase {
  GateActivation activation;
  float relative, absolute;
};

// Kinks and powers are exact. exp is within 2e-6. GELU by erf has the absolute error of its
// approximation (1.5e-7) times |x| / 2; by tanh that of f32 near 1, and xielu's that of
// exp(x) - 1 near 0, times alpha_n.
constexpr ActivationCase kActivations[] = {{GateActivation::kSilu, kExpTolerance, 1e-30F},
                                           {GateActivation::kRelu, 0, 0},
                                           {GateActivation::kFatRelu, 0, 0},
                                           {GateActivation::kDRelu, 0, 0},
                                           {GateActivation::kRelu2, 0, 0},
                                           {GateActivation::kGelu, 1e-6F, 2e-6F},
                                           {GateActivation::kGeluTanh, 4e-6F, 2e-6F},
                                           {GateActivation::kClampedSwiglu, 2e-6F, 1e-6F},
                                           {GateActivation::kXielu, 1e-6F, 2e-6F}};
constexpr Xielu kXielu = {.alpha_p = 1.3F, .alpha_n = 1.7F, .beta = 0.5F, .eps = -1e-6F};

TEST(Elementwise, GatedIsWithinItsActivationsTolerance) {
  for (const OpTable* ops : FastTables()) {
    for (const int n : {1, 16, 37}) {
      auto gate = RandomFloats(static_cast<std::size_t>(n), 6, 4.0F);
      const auto up = RandomFloats(static_cast<std::size_t>(n), 7, 5.0F);
      if (n > 2) gate[2] = -200.0F, gate[1] = 200.0F;
      gate[0] = 0.5F;  // the threshold itself
      for (const auto& [activation, relative, absolute] : kActivations) {
        for (const float* u : {static_cast<const float*>(nullptr), up.data()}) {
          std::vector<float> expected(gate.size()), got(gate.size());
          ReferenceOps().gated({gate.data(), u, n, activation, 0.5F, expected.data(), kXielu});
          ops->gated({gate.data(), u, n, activation, 0.5F, got.data(), kXielu});
          for (std::size_t i = 0; i < got.size(); ++i) {
            EXPECT_NEAR(got[i], expected[i], relative * std::fabs(expected[i]) + absolute)
                << ops->name << " gate " << gate[i] << " activation "
                << static_cast<int>(activation);
          }
        }
      }
    }
  }
}

TEST(Elementwise, SoftCapIsAccurate) {
  for (const OpTable* ops : FastTables()) {
    for (const float cap : {0.5F, 30.0F}) {
      std::vector<float> x;
      for (float v = -90; v <= 90; v += 0.173F) x.push_back(v);
      auto got = x;
      ops->soft_cap(got.data(), static_cast<int>(got.size()), cap);
      for (std::size_t i = 0; i < x.size(); ++i)
        EXPECT_NEAR(got[i], cap * std::tanh(double{x[i]} / cap), 4e-7 * cap) << x[i];
    }
  }
}

TEST(Elementwise, SoftmaxExpIsAccurate) {
  for (const OpTable* ops : FastTables()) {
    std::vector<float> x;
    for (float v = -80; v <= 0; v += 0.0371F) x.push_back(v);
    auto got = x;
    const float total = ops->softmax_exp(got.data(), static_cast<int>(got.size()), 0.5F);
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = std::exp(double{x[i]} - 0.5);
      sum += exact;
      EXPECT_NEAR(got[i], exact, 4e-6 * exact)
          << x[i];  // x - max itself is rounded to 24 bits: 80 * 2^-24
    }
    EXPECT_NEAR(total, sum, kExpTolerance * 2 * sum);
  }
}

}  // namespace
}  // namespace thermocline::kernels
