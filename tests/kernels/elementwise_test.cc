// Tolerances: ops without a transcendental function give the reference's bits; those with exp are
// within 2e-6 relative (the polynomial's error is below 3e-7, sums add a few roundings).
#include <cmath>

#include "tests/kernels/tables.h"

namespace thermocline::kernels {
namespace {

constexpr float kExpTolerance = 2e-6F;

TEST(Elementwise, RmsNormGivesTheReferencesBits) {
  for (const OpTable* ops : FastTables()) {
    for (const int n : {1, 15, 16, 17, 64, 576}) {
      const auto x = RandomFloats(static_cast<std::size_t>(n), 1),
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

TEST(Elementwise, GatedIsNearTheReferenceAndExactForRelu) {
  for (const OpTable* ops : FastTables()) {
    for (const int n : {1, 16, 37}) {
      auto gate = RandomFloats(static_cast<std::size_t>(n), 6, 4.0F);
      const auto up = RandomFloats(static_cast<std::size_t>(n), 7);
      if (n > 2) gate[2] = -200.0F, gate[1] = 200.0F;
      for (const auto activation :
           {GateActivation::kSilu, GateActivation::kRelu, GateActivation::kFatRelu}) {
        std::vector<float> expected(gate.size()), got(gate.size());
        ReferenceOps().gated({gate.data(), up.data(), n, activation, 0.5F, expected.data()});
        ops->gated({gate.data(), up.data(), n, activation, 0.5F, got.data()});
        for (std::size_t i = 0; i < got.size(); ++i) {
          const float tolerance = activation == GateActivation::kSilu
                                      ? kExpTolerance * std::fabs(expected[i]) + 1e-30F
                                      : 0.0F;
          EXPECT_NEAR(got[i], expected[i], tolerance) << ops->name << " gate " << gate[i];
        }
      }
    }
  }
}

TEST(Elementwise, SoftmaxExpIsAccurate) {
  for (const OpTable* ops : FastTables()) {
    std::vector<float> x;
    for (float v = -80; v <= 0; v += 0.0371F) x.push_back(v);
    auto got = x;
    const float total = ops->softmax_exp(got.data(), static_cast<int>(got.size()), 0.5F, 1.0F);
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

TEST(Attention, IsNearTheReference) {
  for (const OpTable* ops : FastTables()) {
    for (const int head_dim : {8, 16, 32, 64, 80, 128}) {
      for (const int cached : {1, 2, 15, 16, 17, 100}) {
        const int stride = (head_dim + 15) / 16 * 16;
        const auto q = RandomFloats(static_cast<std::size_t>(head_dim), 8);
        std::vector<std::uint16_t> k(static_cast<std::size_t>(stride * cached)), v(k.size());
        const auto values = RandomFloats(k.size() * 2, 9);
        for (int s = 0; s < cached; ++s) {
          for (int i = 0; i < head_dim; ++i) {
            const auto at = static_cast<std::size_t>(s * stride + i);
            k[at] = FloatToHalf(values[at]);
            v[at] = FloatToHalf(values[k.size() + at]);
          }
        }
        std::vector<float> scores(static_cast<std::size_t>((cached + 15) / 16 * 16)),
            expected(q.size()), got(q.size());
        AttentionParams p{.q = q.data(),
                          .k = k.data(),
                          .v = v.data(),
                          .cached_tokens = cached,
                          .head_dim = head_dim,
                          .stride = stride,
                          .scale = 1.0F / std::sqrt(static_cast<float>(head_dim)),
                          .scores = scores.data(),
                          .out = expected.data()};
        ReferenceOps().attention(p);
        p.out = got.data();
        ops->attention(p);
        for (std::size_t i = 0; i < got.size(); ++i)
          EXPECT_NEAR(got[i], expected[i], 1e-5)
              << ops->name << " Dh " << head_dim << " S " << cached;
      }
    }
  }
}

}  // namespace
}  // namespace thermocline::kernels
