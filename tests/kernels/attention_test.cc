// Attention over blocks of the KV cache against the scalar reference, within 5e-6: scores are of
// order 1, and exp keeps their relative error.
#include <cmath>
#include <map>
#include <span>

#include "tests/kernels/tables.h"

namespace thermocline::kernels {
namespace {

struct Case {
  KvType type;
  int group, head_dim, begin, end;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const KvType type :
       {KvType::kF16, KvType::kQ8_0, KvType::kF32, KvType::kQ4_0, KvType::kQ8}) {
    for (const int head_dim : {10, 16, 32, 64, 80, 128}) {
      if (IsQuantized(type) && head_dim % 32 != 0) continue;
      for (const int group : {1, 3, 4, 7}) {
        for (const auto& [begin, end] : std::vector<std::pair<int, int>>{
                 {0, 1}, {0, 15}, {0, 64}, {0, 65}, {3, 100}, {70, 71}, {60, 256}, {256, 300}})
          cases.push_back({type, group, head_dim, begin, end});
      }
    }
  }
  return cases;
}

// A cache of one kv head, and queries.
class Fixture {
 public:
  // `origin`: keys have it and are stored without it.
  explicit Fixture(const Case& c, const std::vector<float>& origin = {}, float sink = 0)
      : case_(c), q_(RandomFloats(Size(c.group, c.head_dim), 8)), scores_(Size(c.group, kKvBlock)) {
    for (float& q : q_) q /= std::sqrt(static_cast<float>(c.head_dim));
    const int blocks = c.end / kKvBlock + 1;
    const std::size_t keys = KeyBlockBytes(c.type, c.head_dim);
    memory_.resize(static_cast<std::size_t>(blocks),
                   std::vector<std::uint8_t>(keys + ValueBlockBytes(c.type, c.head_dim)));
    for (auto& block : memory_) blocks_.push_back(block.data());
    for (int s = 0; s < c.end; ++s) {
      auto key = RandomFloats(Size(1, c.head_dim), 100 + static_cast<unsigned>(s));
      auto value = RandomFloats(Size(1, c.head_dim), 900 + static_cast<unsigned>(s));
      if (sink > 0 && s == 0) {  // its score is `sink`, its value small
        double square = 0;
        for (const float q : q_) square += double{q} * q;
        for (std::size_t i = 0; i < key.size(); ++i)
          key[i] = static_cast<float>(double{sink} * q_[i] / square), value[i] /= 1000;
      }
      auto whole = key;
      for (std::size_t i = 0; i < origin.size(); ++i) whole[i] += origin[i];
      auto& block = memory_[static_cast<std::size_t>(s / kKvBlock)];
      StoreKeyAndValue({.type = c.type,
                        .head_dim = c.head_dim,
                        .slot = s % kKvBlock,
                        .key = key.data(),
                        .value = value.data(),
                        .keys = block.data(),
                        .values = block.data() + keys});
      keys_.push_back(whole);
      values_.push_back(value);
    }
    if (c.head_dim % 32 != 0) return;
    levels_.resize(q_.size());
    scale_.resize(q_.size() / 32);
    scaled_sum_ = scale_;
    sum_.resize(scale_.size());
    half_sum_ = sum_;
    pair_sum_.resize(2 * sum_.size());
    ReferenceOps().quantize({q_.data(), static_cast<int>(q_.size()), levels_.data(), scale_.data(),
                             scaled_sum_.data(), sum_.data(), half_sum_.data(), pair_sum_.data()});
  }

  static std::size_t Size(int a, int b) {
    return static_cast<std::size_t>(a) * static_cast<std::size_t>(b);
  }

  struct Partial {
    std::vector<float> max, total, out;
    explicit Partial(const Case& c)
        : max(Size(1, c.group)), total(Size(1, c.group)), out(Size(c.group, c.head_dim)) {}
    AttentionState state() { return {max.data(), total.data(), out.data()}; }
  };

  void Attend(const OpTable& ops, int begin, int end, Partial& into) {
    const PositionSpan span{begin, end};
    AttendRows(ops, 0, std::span(&span, 1), case_.group, into);
  }

  // One token of `group` rows for each span, from row `first` on.
  void AttendRows(const OpTable& ops, int first, std::span<const PositionSpan> spans, int group,
                  Partial& into) {
    const int at = first * case_.head_dim, block = at / kActivationBlock;
    ops.attention({.q = {.x = q_.data() + at,
                         .q = levels_.data() + at,
                         .scale = scale_.data() + block,
                         .scaled_sum = scaled_sum_.data() + block,
                         .sum = sum_.data() + block,
                         .half_sum = half_sum_.data() + block,
                         .pair_sum = pair_sum_.data() + 2 * block,
                         .cols = case_.head_dim},
                   .group = group,
                   .head_dim = case_.head_dim,
                   .type = case_.type,
                   .blocks = blocks_.data(),
                   .keys_offset = 0,
                   .values_offset = KeyBlockBytes(case_.type, case_.head_dim),
                   .tokens = static_cast<int>(spans.size()),
                   .spans = spans.data(),
                   .scores = scores_.data(),
                   .score_cap = score_cap,
                   .slopes = slopes,
                   .positions = positions.data(),
                   .key_origin = key_origin,
                   .state = into.state().Row(first, case_.head_dim)});
  }

  float score_cap = 0;
  const float* slopes = nullptr;            // of the rows of a token
  std::vector<int> positions = {50, 0, 0};  // of the tokens
  const float* key_origin = nullptr;

  float QueryTimes(int row, const std::vector<float>& vector) const {
    double sum = 0;
    for (std::size_t i = 0; i < vector.size(); ++i)
      sum += double{q_[static_cast<std::size_t>(row) * vector.size() + i]} * vector[i];
    return static_cast<float>(sum);
  }

  std::vector<float> Run(const OpTable& ops) {
    Partial partial(case_);
    Attend(ops, case_.begin, case_.end, partial);
    return Finish(partial);
  }

  std::vector<float> Finish(Partial& partial) {
    std::vector<float> out(partial.out.size());
    FinishAttention(partial.state(), case_.group, case_.head_dim, nullptr, out.data());
    return out;
  }

  // The result in double precision, from the stored numbers.
  std::vector<double> Exact() const {
    std::vector<double> out(q_.size());
    const auto dim = static_cast<std::size_t>(case_.head_dim);
    for (std::size_t g = 0; g < static_cast<std::size_t>(case_.group); ++g) {
      double total = 0;
      for (auto s = static_cast<std::size_t>(case_.begin); s < static_cast<std::size_t>(case_.end);
           ++s) {
        double dot = 0;
        for (std::size_t i = 0; i < dim; ++i) dot += double{q_[g * dim + i]} * keys_[s][i];
        if (slopes != nullptr)
          dot -= double{slopes[g]} * std::abs(positions[0] - static_cast<int>(s));
        if (score_cap > 0) dot = double{score_cap} * std::tanh(dot / double{score_cap});
        total += std::exp(dot);
        for (std::size_t i = 0; i < dim; ++i) out[g * dim + i] += std::exp(dot) * values_[s][i];
      }
      for (std::size_t i = 0; i < dim; ++i) out[g * dim + i] /= total;
    }
    return out;
  }

 private:
  Case case_;
  std::vector<float> q_, scale_, scaled_sum_, scores_;
  std::vector<std::int8_t> levels_;
  std::vector<std::int32_t> sum_, half_sum_, pair_sum_;
  std::vector<std::vector<std::uint8_t>> memory_;
  std::vector<const std::uint8_t*> blocks_;
  std::vector<std::vector<float>> keys_, values_;
};

std::string Name(const OpTable& ops, const Case& c) {
  return std::string(ops.name) + " kv type " + std::to_string(static_cast<int>(c.type)) +
         " group " + std::to_string(c.group) + " Dh " + std::to_string(c.head_dim) + " [" +
         std::to_string(c.begin) + ", " + std::to_string(c.end) + ")";
}

TEST(Attention, CappedScoresAreNearTheExactSoftmax) {
  for (const Case& c : Cases()) {
    if (c.type != KvType::kF32) continue;
    Fixture fixture(c);
    const auto uncapped = fixture.Run(ReferenceOps());
    fixture.score_cap = 0.5F;
    const auto exact = fixture.Exact();
    std::vector<const OpTable*> all = FastTables();
    all.push_back(&ReferenceOps());
    for (const OpTable* ops : all) {
      const auto got = fixture.Run(*ops);
      if (c.end - c.begin > 1) {
        EXPECT_NE(got, uncapped);
      }
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], exact[i], 3e-6) << Name(*ops, c) << " at " << i;
    }
  }
}

// The token sees positions to both sides of its own.
TEST(Attention, ScoresThatFallWithTheDistanceAreNearTheExactSoftmax) {
  constexpr float kSlopes[] = {0.5F, 0.25F, 0.125F, 0.06F, 0.03F, 0.02F, 0.01F};
  for (const Case& c : Cases()) {
    Fixture fixture(c);
    fixture.slopes = kSlopes;
    const auto expected =
        c.type == KvType::kF32 ? std::vector<float>() : fixture.Run(ReferenceOps());
    const auto exact = fixture.Exact();
    std::vector<const OpTable*> all = FastTables();
    all.push_back(&ReferenceOps());
    for (const OpTable* ops : all) {
      const auto got = fixture.Run(*ops);
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], expected.empty() ? exact[i] : double{expected[i]}, 5e-6)
            << Name(*ops, c) << " at " << i;
    }
  }
}

TEST(Attention, IsNearTheReference) {
  for (const Case& c : Cases()) {
    Fixture fixture(c);
    const auto expected = fixture.Run(ReferenceOps());
    for (const OpTable* ops : FastTables()) {
      const auto got = fixture.Run(*ops);
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], expected[i], 5e-6) << Name(*ops, c) << " at " << i;
    }
  }
}

TEST(Attention, OnIntegersHasTheBitsOfTheReference) {
  for (const Case& c : Cases()) {
    if (c.type != KvType::kQ8) continue;
    Fixture fixture(c);
    Fixture::Partial expected(c);
    fixture.Attend(ReferenceOps(), c.begin, c.end, expected);
    for (const OpTable* ops : FastTables()) {
      Fixture::Partial got(c);
      fixture.Attend(*ops, c.begin, c.end, got);
      EXPECT_EQ(got.max, expected.max) << Name(*ops, c);
      EXPECT_EQ(got.total, expected.total) << Name(*ops, c);
      EXPECT_EQ(got.out, expected.out) << Name(*ops, c);
    }
  }
}

TEST(Attention, ReferenceIsNearTheExactSoftmax) {
  for (const Case& c : Cases()) {
    Fixture fixture(c);
    const auto got = fixture.Run(ReferenceOps());
    const auto exact = fixture.Exact();
    // Scores are of order 1. f16 has 11 bits, so weights and values are off by some 2^-11 each;
    // Q8_0 has a step of some 3 / 127 of a value's deviation, so they are off by some 2^-7. Q4_0's
    // step is 3 / 8 of it.
    const std::map<KvType, double> tolerances = {{KvType::kF32, 2e-6},
                                                 {KvType::kF16, 2e-3},
                                                 {KvType::kQ8_0, 0.03},
                                                 {KvType::kQ4_0, 0.4},
                                                 {KvType::kQ8, 0.03}};
    const double tolerance = tolerances.at(c.type);
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], exact[i], tolerance) << Name(ReferenceOps(), c) << " at " << i;
  }
}

TEST(Attention, KeysWithoutTheirOriginHaveTheSoftmaxOfWholeKeys) {
  const Case c{KvType::kQ8, 3, 64, 0, 250};
  std::vector<float> origin(64);
  origin[5] = 354;
  origin[40] = -90;
  Fixture fixture(c, origin);
  fixture.key_origin = origin.data();
  const auto exact = fixture.Exact();
  std::vector<const OpTable*> tables = FastTables();
  tables.push_back(&ReferenceOps());
  const auto expected = fixture.Run(ReferenceOps());
  for (const OpTable* ops : tables) {
    const auto got = fixture.Run(*ops);
    EXPECT_EQ(got, expected) << ops->name;
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], exact[i], 0.03) << ops->name;
    // The maximum is that of whole scores, so that parts with and without an origin can be merged.
    Fixture::Partial with(c), without(c);
    fixture.Attend(*ops, 0, 250, with);
    fixture.key_origin = nullptr;
    fixture.Attend(*ops, 0, 250, without);
    fixture.key_origin = origin.data();
    for (std::size_t g = 0; g < 3; ++g)
      EXPECT_NEAR(with.max[g] - without.max[g], fixture.QueryTimes(static_cast<int>(g), origin),
                  1e-3);
  }
}

// Weights far below the row's maximum, which draws a token whose value is small: bytes relative to
// the row's maximum would lose them all.
TEST(Attention, ATokenThatDrawsMostAttentionDoesNotHideTheOthers) {
  const Case c{KvType::kQ8, 1, 64, 0, 256};
  Fixture fixture(c, {}, /*sink=*/6.0F);
  const auto exact = fixture.Exact();
  for (const OpTable* ops : FastTables()) {
    const auto got = fixture.Run(*ops);
    double error = 0, size = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      error += std::pow(got[i] - exact[i], 2);
      size += exact[i] * exact[i];
    }
    EXPECT_LT(std::sqrt(error / size), 0.05) << ops->name;
  }
}

TEST(Attention, PartsMergeToTheWhole) {
  const Case c{KvType::kF16, 2, 32, 0, 250};
  Fixture fixture(c);
  std::vector<const OpTable*> tables = FastTables();
  tables.push_back(&ReferenceOps());
  for (const OpTable* ops : tables) {
    const auto whole = fixture.Run(*ops);
    Fixture::Partial first(c), second(c);
    fixture.Attend(*ops, 0, 64, first);
    fixture.Attend(*ops, 64, 250, second);
    MergeAttention(second.state(), c.group, c.head_dim, first.state());
    const auto merged = fixture.Finish(first);
    for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(merged[i], whole[i], 1e-5);
  }
}

// The spans of consecutive tokens: causal and within the window, inside the chunk of their
// positions.
std::vector<PositionSpan> Spans(int first, int tokens, int window) {
  std::vector<PositionSpan> spans;
  for (int t = 0; t < tokens; ++t) {
    const int end = first + t + 1, chunk = first / kAttentionChunk * kAttentionChunk;
    spans.push_back({std::max({chunk, window > 0 ? end - window : 0}), end});
  }
  return spans;
}

TEST(Attention, EachTokenOfATileHasTheBitsItHasAlone) {
  struct Tile {
    int first, tokens, window, head_dim = 64;
  };
  for (const KvType type : {KvType::kF16, KvType::kQ8_0, KvType::kF32, KvType::kQ8}) {
    for (const int group : {1, 3, 5, 30}) {
      for (const Tile& tile : {Tile{0, 24, 0}, Tile{55, 20, 0}, Tile{120, 7, 50}, Tile{70, 70, 65},
                               Tile{190, 9, 0, 32}, Tile{190, 9, 0, 96}, Tile{180, 12, 0, 128},
                               Tile{190, 9, 0, 160}, Tile{190, 9, 0, 256}}) {
        const int end = tile.first + tile.tokens;
        const std::vector<PositionSpan> spans = Spans(tile.first, tile.tokens, tile.window);
        const int head_dim = tile.head_dim;
        if (type != KvType::kQ8 && head_dim != 64) continue;
        // One row for each token and head.
        const Case all{type, tile.tokens * group, head_dim, 0, end};
        Fixture fixture(all);
        std::vector<const OpTable*> tables = FastTables();
        tables.push_back(&ReferenceOps());
        for (const OpTable* ops : tables) {
          Fixture::Partial together(all), alone(all);
          fixture.AttendRows(*ops, 0, spans, group, together);
          for (int t = 0; t < tile.tokens; ++t)
            fixture.AttendRows(*ops, t * group, std::span(spans).subspan(t, 1), group, alone);
          EXPECT_EQ(together.max, alone.max) << Name(*ops, all);
          EXPECT_EQ(together.total, alone.total) << Name(*ops, all);
          EXPECT_EQ(together.out, alone.out) << Name(*ops, all);
        }
      }
    }
  }
}

TEST(Attention, PositionsOutsideTheWindowDoNotMatter) {
  const Case c{KvType::kF16, 1, 16, 5, 40};
  Fixture fixture(c);
  for (const OpTable* ops : FastTables()) {
    // A single position gives its value, whatever else the block holds.
    Fixture::Partial one(c);
    fixture.Attend(*ops, 7, 8, one);
    const auto out = fixture.Finish(one);
    const auto value = RandomFloats(16, 900 + 7);
    for (std::size_t i = 0; i < 16; ++i)
      EXPECT_EQ(out[i], HalfToFloat(FloatToHalf(value[i]))) << ops->name;
  }
}

}  // namespace
}  // namespace thermocline::kernels
