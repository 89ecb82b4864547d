// Sums of selected rows: the reference is near double precision, every table gives the reference's
// bits, and an absent row equals a row whose h is zero.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "tests/kernels/scattered_rows.h"
#include "tests/kernels/tables.h"

namespace thermocline::kernels {
namespace {

struct Sum {
  DType type;
  int rows, cols;
  std::vector<std::uint8_t> gguf, data;
  RowMatrix matrix;

  Sum(DType t, int num_rows, int num_cols)
      : type(t),
        rows(num_rows),
        cols(num_cols),
        gguf(RandomRows(t, num_rows, num_cols, 23)),
        data(PackAllRows(t, gguf, num_rows, num_cols)),
        matrix{t, num_rows, num_cols, data.data()} {}

  // The sum over `ids` for tokens whose h of row r is h[t * rows + r], in ranges of `step` columns.
  std::vector<float> Run(const OpTable& ops, const std::vector<int>& ids,
                         const std::vector<float>& h, int tokens, int step) const {
    std::vector<float> chosen;
    for (int t = 0; t < tokens; ++t) {
      for (const int id : ids) chosen.push_back(h[static_cast<std::size_t>(t * rows + id)]);
    }
    std::vector<float> out(static_cast<std::size_t>(tokens * cols), -1);
    for (int begin = 0; begin < cols; begin += step) {
      const int end = std::min(cols, begin + step);
      std::vector<std::uint8_t> scratch(SumScratchBytes(end - begin));
      ops.sum_rows({.weights = matrix,
                    .ids = ids.data(),
                    .count = static_cast<int>(ids.size()),
                    .h = chosen.data(),
                    .h_stride = static_cast<int>(ids.size()),
                    .tokens = tokens,
                    .col_begin = begin,
                    .col_end = end,
                    .out = out.data(),
                    .out_stride = cols,
                    .scratch = scratch.data()});
    }
    return out;
  }
};

// About one in five is not zero; some are large.
std::vector<float> SparseH(int n) {
  std::vector<float> h = RandomFloats(static_cast<std::size_t>(n), 31);
  for (std::size_t i = 0; i < h.size(); ++i) {
    if (i % 5 != 1) h[i] = 0;
    if (i % 35 == 1) h[i] *= 50;
  }
  return h;
}

// The largest levels times the largest bytes of coefficients, of one sign and of both, for more
// rows than are added before a sum is widened.
std::vector<float> LargestH(int rows, int sign) {
  std::vector<float> h(static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < h.size(); ++i) {
    // 32,512 is 127 and 0, 32,384 is 127 and -128.
    const float size = i % 2 == 0 ? 1.0F : 32384.0F / kCoefficientMax;
    h[i] = sign == 0 && i % 3 == 0 ? -size : sign < 0 ? -size : size;
  }
  return h;
}

std::vector<Sum> Sums() {
  std::vector<Sum> sums;
  for (int t = 0; t < kNumDTypes; ++t) {
    const auto type = static_cast<DType>(t);
    if (!CanSumRows(type)) continue;
    const int block = Traits(type).block_size;
    sums.emplace_back(type, 2300, block == 1 ? 90 : block == 32 ? 608 : 768);
    sums.emplace_back(type, 37, block == 1 ? 5 : block);
  }
  return sums;
}

std::vector<int> LiveRows(const Sum& sum, const std::vector<float>& h, int tokens) {
  std::vector<int> ids;
  for (int r = 0; r < sum.rows; ++r) {
    bool live = false;
    for (int t = 0; t < tokens; ++t)
      live = live || h[static_cast<std::size_t>(t * sum.rows + r)] != 0;
    if (live) ids.push_back(r);
  }
  return ids;
}

TEST(SumRows, TheLargestSumsFitTheirWords) {
  for (const Sum& some : Sums()) {
    if (!Traits(some.type).quantized) continue;
    Sum sum(some.type, 300, some.cols);
    // Scales are those of the first row, levels the largest.
    const std::size_t row_bytes = RowBytes(sum.type, sum.cols);
    const auto block_bytes = static_cast<std::size_t>(Traits(sum.type).block_bytes);
    for (std::size_t i = 0; i < sum.gguf.size(); ++i) {
      const std::size_t in_block = i % row_bytes % block_bytes;
      bool scale = in_block < (sum.type == DType::kQ4_1 || sum.type == DType::kQ4_K ? 4 : 2);
      if (sum.type == DType::kTQ2_0) scale = in_block >= 64;
      const auto level = static_cast<std::uint8_t>(sum.type == DType::kQ8_0 ? 0x7F : 0xFF);
      sum.gguf[i] = scale ? sum.gguf[i % row_bytes] : level;
    }
    sum.data = PackAllRows(sum.type, sum.gguf, sum.rows, sum.cols);
    sum.matrix.data = sum.data.data();
    std::vector<int> ids(static_cast<std::size_t>(sum.rows));
    std::iota(ids.begin(), ids.end(), 0);
    for (const int sign : {1, -1, 0}) {
      const std::vector<float> h = LargestH(sum.rows, sign);
      const auto expected = sum.Run(ReferenceOps(), ids, h, 1, sum.cols);
      for (const OpTable* ops : FastTables())
        EXPECT_EQ(sum.Run(*ops, ids, h, 1, sum.cols), expected)
            << ops->name << " " << Traits(sum.type).name << " " << sign;
    }
  }
}

TEST(SumRows, TheReferenceIsNearDoublePrecision) {
  for (const Sum& sum : Sums()) {
    const auto h = SparseH(sum.rows);
    const auto got = sum.Run(ReferenceOps(), LiveRows(sum, h, 1), h, 1, 1 << 20);
    std::vector<double> want(static_cast<std::size_t>(sum.cols)), size(want.size());
    std::vector<float> row(want.size());
    for (int r = 0; r < sum.rows; ++r) {
      DequantizeRow(sum.type,
                    sum.gguf.data() + static_cast<std::size_t>(r) * RowBytes(sum.type, sum.cols),
                    sum.cols, row.data());
      for (std::size_t c = 0; c < want.size(); ++c) {
        want[c] +=
            static_cast<double>(h[static_cast<std::size_t>(r)]) * static_cast<double>(row[c]);
        size[c] += std::fabs(static_cast<double>(h[static_cast<std::size_t>(r)]) *
                             static_cast<double>(row[c]));
      }
    }
    // Coefficients of 16 bits: half a unit of the largest's 2^-15 for each row. A column of ternary
    // weights adds fewer of them, so that less of the error averages out.
    const double tolerance = sum.type == DType::kTQ2_0 ? 3e-4 : 2e-4;
    for (std::size_t c = 0; c < want.size(); ++c)
      ASSERT_NEAR(got[c], want[c], tolerance * size[c] + 1e-6)
          << Traits(sum.type).name << " column " << c;
  }
}

TEST(SumRows, EveryTableGivesTheReferencesBits) {
  for (const Sum& sum : Sums()) {
    const auto h = SparseH(3 * sum.rows);
    const auto ids = LiveRows(sum, h, 3);
    const auto want = sum.Run(ReferenceOps(), ids, h, 3, 1 << 20);
    for (const OpTable* ops : FastTables()) {
      for (const int step : {256, 512, 1 << 20})
        ASSERT_EQ(sum.Run(*ops, ids, h, 3, step), want) << ops->name << " " << Traits(sum.type).name
                                                        << " cols " << sum.cols << " step " << step;
    }
  }
}

TEST(SumRows, AnAbsentRowIsARowWhoseHIsZero) {
  for (const Sum& sum : Sums()) {
    const auto h = SparseH(sum.rows);
    std::vector<int> all(static_cast<std::size_t>(sum.rows));
    for (int r = 0; r < sum.rows; ++r) all[static_cast<std::size_t>(r)] = r;
    for (const OpTable* ops : FastTables())
      ASSERT_EQ(sum.Run(*ops, LiveRows(sum, h, 1), h, 1, 256), sum.Run(*ops, all, h, 1, 256))
          << ops->name << " " << Traits(sum.type).name;
  }
}

TEST(SumRows, ItDoesNotMatterWhereTheRowsLie) {
  for (Sum& sum : Sums()) {
    const auto h = SparseH(2 * sum.rows);
    const auto ids = LiveRows(sum, h, 2);
    const Scattered scattered(sum.data, sum.rows);
    std::vector<const OpTable*> tables = FastTables();
    tables.push_back(&ReferenceOps());
    for (const OpTable* ops : tables) {
      const auto want = sum.Run(*ops, ids, h, 2, 1 << 20);
      const RowMatrix together = std::exchange(sum.matrix, scattered.Matrix(sum.type, sum.cols));
      EXPECT_EQ(sum.Run(*ops, ids, h, 2, 1 << 20), want)
          << ops->name << " " << Traits(sum.type).name;
      sum.matrix = together;
    }
  }
}

TEST(SumRows, NoRowsAreZeros) {
  for (const Sum& sum : Sums()) {
    const std::vector<float> h(static_cast<std::size_t>(sum.rows), 0.0F);
    for (const OpTable* ops : FastTables()) {
      for (const float y : sum.Run(*ops, {}, h, 1, 1 << 20)) ASSERT_EQ(y, 0.0F);
      for (const float y : sum.Run(*ops, {0, 3}, h, 1, 1 << 20)) ASSERT_EQ(y, 0.0F);
    }
  }
}

// The sum over `ids`, with the neurons of `hot` by one partition and the others by another.
std::vector<float> SumOfParts(const Sum& sum, const OpTable& ops, const std::vector<int>& ids,
                              const std::vector<bool>& hot, const std::vector<float>& h, int tokens,
                              int step) {
  const int runs = NumSumRuns(sum.rows), blocks = sum.cols / 32;
  const auto cells = static_cast<std::size_t>(tokens * runs * blocks);
  struct Part {
    std::vector<int> ids;
    std::vector<float> h, maxima, minimums;
    std::vector<std::int32_t> high, low;
  };
  std::array<Part, 2> parts;
  for (Part& part : parts) {
    const bool wanted = &part == parts.data();
    for (const int id : ids) {
      if (hot[static_cast<std::size_t>(id)] == wanted) part.ids.push_back(id);
    }
    for (int t = 0; t < tokens; ++t) {
      for (const int id : part.ids)
        part.h.push_back(h[static_cast<std::size_t>(t * sum.rows + id)]);
    }
    part.maxima.resize(cells, -1);
    part.minimums.resize(cells, -1);
    part.high.resize(cells * 32, 7);
    part.low.resize(cells * 32, 7);
  }
  const auto run = [&](Part& part, const SharedSum& shared) {
    for (int begin = 0; begin < sum.cols; begin += step) {
      const int end = std::min(sum.cols, begin + step);
      std::vector<std::uint8_t> scratch(SumScratchBytes(end - begin));
      ops.sum_rows({.weights = sum.matrix,
                    .ids = part.ids.data(),
                    .count = static_cast<int>(part.ids.size()),
                    .h = part.h.data(),
                    .h_stride = static_cast<int>(part.ids.size()),
                    .tokens = tokens,
                    .skip_zeros = true,
                    .col_begin = begin,
                    .col_end = end,
                    .scratch = scratch.data(),
                    .shared = &shared});
    }
  };
  for (Part& part : parts) run(part, {.maxima = part.maxima.data()});
  std::vector<float> limits(cells), out(static_cast<std::size_t>(tokens * sum.cols), -1);
  for (std::size_t i = 0; i < cells; ++i)
    limits[i] = std::max(parts[0].maxima[i], parts[1].maxima[i]);
  for (Part& part : parts) {
    run(part, {.limits = limits.data(),
               .high = part.high.data(),
               .low = part.low.data(),
               .minimums = part.minimums.data()});
  }
  const bool minimums = sum.type == DType::kQ4_1 || sum.type == DType::kQ4_K;
  for (int t = 0; t < tokens; ++t) {
    const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(t) * runs * blocks;
    FinishSumParams finish{.runs = runs,
                           .cols = sum.cols,
                           .limits = limits.data() + at,
                           .num_parts = 2,
                           .parts = {},
                           .col_begin = 0,
                           .col_end = sum.cols,
                           .out = out.data() + static_cast<std::ptrdiff_t>(t) * sum.cols};
    for (std::size_t i = 0; i < parts.size(); ++i)
      finish.parts[i] = {parts[i].high.data() + 32 * at, parts[i].low.data() + 32 * at,
                         minimums ? parts[i].minimums.data() + at : nullptr};
    ops.finish_sum(finish);
  }
  return out;
}

TEST(SumRows, PartitionsShareASumWithItsBits) {
  for (const Sum& sum : Sums()) {
    if (!Traits(sum.type).quantized) continue;
    const auto h = SparseH(3 * sum.rows);
    const auto ids = LiveRows(sum, h, 3);
    const auto want = sum.Run(ReferenceOps(), ids, h, 3, 1 << 20);
    std::vector<const OpTable*> tables = FastTables();
    tables.push_back(&ReferenceOps());
    for (const int share : {0, 1, 3}) {  // hot neurons in four; the second run is all hot
      std::vector<bool> hot;
      for (int r = 0; r < sum.rows; ++r) hot.push_back(r / kSumChunk == 1 || r * 7 % 4 < share);
      const auto parts = SumOfParts(sum, ReferenceOps(), ids, hot, h, 3, 1 << 20);
      for (const OpTable* ops : tables) {
        for (const int step : {256, 1 << 20})
          ASSERT_EQ(SumOfParts(sum, *ops, ids, hot, h, 3, step), parts)
              << ops->name << " " << Traits(sum.type).name << " step " << step;
      }
      const bool exact = sum.type == DType::kQ8_0 || sum.type == DType::kQ4_0;
      float largest = 0;
      for (const float y : want) largest = std::max(largest, std::fabs(y));
      for (std::size_t i = 0; i < want.size(); ++i) {
        if (exact) {
          ASSERT_EQ(parts[i], want[i]) << Traits(sum.type).name << " " << i;
        } else {  // minimums are floats, added by partition
          ASSERT_NEAR(parts[i], want[i], 2e-6F * largest);
        }
      }
    }
  }
}

}  // namespace
}  // namespace thermocline::kernels
