// Ops without a transcendental function: every table has the reference's bits.
#include <cmath>

#include "tests/kernels/tables.h"

namespace thermocline::kernels {
namespace {

struct Head {
  int rows, cols, tokens;
  std::vector<float> state, k, q, v, decay, beta, out;

  Head(int r, int c, int t)
      : rows(r),
        cols(c),
        tokens(t),
        state(RandomFloats(std::size_t(r) * c, 1)),
        k(RandomFloats(std::size_t(t) * r, 2)),
        q(RandomFloats(std::size_t(t) * r, 3)),
        v(RandomFloats(std::size_t(t) * c, 4)),
        decay(RandomFloats(t, 5)),
        beta(RandomFloats(t, 6)),
        out(std::size_t(t) * c) {
    for (float& d : decay) d = 1 / (1 + std::exp(-d));
    for (float& key : k) key /= static_cast<float>(r);
  }
  // Tokens [begin, end).
  RecurrenceParams Params(bool delta, int begin, int end) {
    return {.state = state.data(),
            .rows = rows,
            .cols = cols,
            .state_stride = cols,
            .tokens = end - begin,
            .key_stride = rows,
            .value_stride = cols,
            .gate_stride = 1,
            .out_stride = cols,
            .k = k.data() + std::ptrdiff_t{begin} * rows,
            .q = q.data() + std::ptrdiff_t{begin} * rows,
            .v = v.data() + std::ptrdiff_t{begin} * cols,
            .decay = decay.data() + begin,
            .beta = delta ? beta.data() + begin : nullptr,
            .out = out.data() + std::ptrdiff_t{begin} * cols};
  }
};

TEST(Recurrence, EveryTableHasTheReferencesBits) {
  for (const OpTable* ops : FastTables()) {
    for (const auto& [rows, cols] : {std::pair{128, 128}, {16, 16}, {7, 48}, {64, 80}}) {
      for (const bool delta : {true, false}) {
        Head expected(rows, cols, 5), got(rows, cols, 5);
        ReferenceOps().recurrence(expected.Params(delta, 0, 5));
        ops->recurrence(got.Params(delta, 0, 5));
        EXPECT_EQ(got.out, expected.out) << ops->name << " " << rows << "x" << cols;
        EXPECT_EQ(got.state, expected.state) << ops->name << " " << rows << "x" << cols;
      }
    }
  }
}

TEST(Recurrence, BitsDoNotDependOnCutsNorOnTheOutputBeingWanted) {
  for (const OpTable* ops : FastTables()) {
    Head whole(32, 48, 9), cut(32, 48, 9), silent(32, 48, 9);
    ops->recurrence(whole.Params(true, 0, 9));
    for (const auto& [begin, end] : {std::pair{0, 1}, {1, 4}, {4, 9}})
      ops->recurrence(cut.Params(true, begin, end));
    RecurrenceParams params = silent.Params(true, 0, 9);
    params.out = nullptr;
    ops->recurrence(params);
    EXPECT_EQ(cut.out, whole.out) << ops->name;
    EXPECT_EQ(cut.state, whole.state) << ops->name;
    EXPECT_EQ(silent.state, whole.state) << ops->name;
  }
}

// The definition in double: what the delta rule stores under a key is read back by it.
TEST(Recurrence, ReferenceIsTheDefinition) {
  Head head(24, 16, 6);
  std::vector<double> state(head.state.begin(), head.state.end());
  ReferenceOps().recurrence(head.Params(true, 0, 6));
  for (int t = 0; t < 6; ++t) {
    for (int c = 0; c < 16; ++c) {
      double read = 0, out = 0;
      for (int r = 0; r < 24; ++r) {
        state[r * 16 + c] *= head.decay[t];
        read += state[r * 16 + c] * head.k[t * 24 + r];
      }
      const double e = head.beta[t] * (head.v[t * 16 + c] - read);
      for (int r = 0; r < 24; ++r) {
        state[r * 16 + c] += head.k[t * 24 + r] * e;
        out += state[r * 16 + c] * head.q[t * 24 + r];
      }
      EXPECT_NEAR(head.out[t * 16 + c], out, 1e-5 * (1 + std::abs(out)));
    }
  }
}

TEST(Recurrence, ShortConvolutionsHaveTheReferencesBits) {
  for (const OpTable* ops : FastTables()) {
    for (const int n : {1, 16, 37, 96}) {
      const auto rows = RandomFloats(std::size_t(n) * 4, 1),
                 weight = RandomFloats(std::size_t(n) * 4, 2), bias = RandomFloats(n, 3);
      for (const float* b : {static_cast<const float*>(nullptr), bias.data()}) {
        std::vector<float> expected(n), got(n);
        ShortConvParams p{
            .weight = weight.data(), .bias = b, .taps = 4, .n = n, .out = expected.data()};
        for (int t = 0; t < 4; ++t) p.rows[t] = rows.data() + std::ptrdiff_t{t} * n;
        ReferenceOps().short_conv(p);
        p.out = got.data();
        ops->short_conv(p);
        EXPECT_EQ(got, expected) << ops->name << " n=" << n;
        double sum = b != nullptr ? b[0] : 0;
        for (int t = 0; t < 4; ++t)
          sum += double{weight[std::size_t(t) * n]} * rows[std::size_t(t) * n];
        EXPECT_NEAR(got[0], sum, 1e-5);
      }
    }
  }
}

}  // namespace
}  // namespace thermocline::kernels
