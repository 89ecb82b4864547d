// Products of selected rows: every table gives the bits of panels, wherever the rows are in memory.
#include "tests/kernels/random_tokens.h"
#include "tests/kernels/scattered_rows.h"
#include "tests/kernels/tables.h"

namespace thermocline::kernels {
namespace {

std::vector<int> SomeRows(int rows, int every) {
  std::vector<int> ids;
  for (int r = every / 2; r < rows; r += every) ids.push_back(r);
  return ids;
}

std::vector<int> Columns(DType type) {
  if (!Traits(type).quantized) return {5, 64, 172};
  const int block = Traits(type).block_size;
  return {block, 3 * block, 8 * block, 9 * block + (block == 32 ? 64 : 0)};
}

TEST(Rows, ProductsHaveTheBitsOfPanels) {
  constexpr int kRows = 70;
  for (int t = 0; t < kNumDTypes; ++t) {
    const auto type = static_cast<DType>(t);
    for (const int cols : Columns(type)) {
      const auto gguf = RandomRows(type, kRows, cols, 11);
      const auto panels = Pack(type, gguf, kRows, cols),
                 rows = PackAllRows(type, gguf, kRows, cols);
      std::vector<std::uint8_t> scratch(RowScratchBytes(type, cols));
      for (const int tokens : {1, 3, 17}) {
        const RandomTokens input(tokens, cols);
        std::vector<float> all(static_cast<std::size_t>(tokens * kRows));
        ReferenceOps().gemm({.weights = {type, kRows, cols, panels.data()},
                             .activations = input.view,
                             .tokens = tokens,
                             .out = all.data(),
                             .out_stride = kRows,
                             .panel_begin = 0,
                             .panel_end = NumPanels(kRows)});
        std::vector<const OpTable*> tables = FastTables();
        tables.push_back(&ReferenceOps());
        for (const OpTable* ops : tables) {
          for (const int every : {1, 2, 7}) {
            const auto ids = SomeRows(kRows, every);
            const int count = static_cast<int>(ids.size());
            std::vector<float> out(static_cast<std::size_t>(tokens * count), -1);
            ops->gemm_rows({.weights = {type, kRows, cols, rows.data()},
                            .ids = every == 1 ? nullptr : ids.data(),
                            .first = 0,
                            .count = count,
                            .activations = input.view,
                            .tokens = tokens,
                            .out = out.data(),
                            .out_stride = count,
                            .scratch = scratch.data()});
            for (int token = 0; token < tokens; ++token) {
              for (int k = 0; k < count; ++k) {
                ASSERT_EQ(
                    out[static_cast<std::size_t>(token * count + k)],
                    all[static_cast<std::size_t>(token * kRows + ids[static_cast<std::size_t>(k)])])
                    << ops->name << " " << Traits(type).name << " cols " << cols << " tokens "
                    << tokens << " row " << ids[static_cast<std::size_t>(k)];
              }
            }
          }
        }
      }
    }
  }
}

TEST(Rows, ItDoesNotMatterWhereTheyLie) {
  constexpr int kRows = 70;
  for (int t = 0; t < kNumDTypes; ++t) {
    const auto type = static_cast<DType>(t);
    const int cols = Columns(type).back();
    const auto rows = PackAllRows(type, RandomRows(type, kRows, cols, 11), kRows, cols);
    const Scattered scattered(rows, kRows);
    std::vector<std::uint8_t> scratch(RowScratchBytes(type, cols));
    std::vector<const OpTable*> tables = FastTables();
    tables.push_back(&ReferenceOps());
    for (const OpTable* ops : tables) {
      for (const int tokens : {1, 3}) {
        const RandomTokens input(tokens, cols);
        const auto multiply = [&](const RowMatrix& matrix, const std::vector<int>& ids) {
          std::vector<float> out(static_cast<std::size_t>(tokens) * ids.size());
          ops->gemm_rows({.weights = matrix,
                          .ids = ids.size() == kRows ? nullptr : ids.data(),
                          .count = static_cast<int>(ids.size()),
                          .activations = input.view,
                          .tokens = tokens,
                          .out = out.data(),
                          .out_stride = static_cast<int>(ids.size()),
                          .scratch = scratch.data()});
          return out;
        };
        for (const int every : {1, 3}) {
          const auto ids = SomeRows(kRows, every);
          ASSERT_EQ(multiply(scattered.Matrix(type, cols), ids),
                    multiply({type, kRows, cols, rows.data()}, ids))
              << ops->name << " " << Traits(type).name << " every " << every;
        }
      }
    }
  }
}

TEST(Rows, ARowReadsBackAsItWas) {
  for (int t = 0; t < kNumDTypes; ++t) {
    const auto type = static_cast<DType>(t);
    const int cols = Columns(type).back();
    const auto gguf = RandomRows(type, 19, cols, 5);
    const auto rows = PackAllRows(type, gguf, 19, cols);
    std::vector<float> want(static_cast<std::size_t>(cols)), got(want.size());
    DequantizeRow(type, gguf.data() + 17 * RowBytes(type, cols), cols, want.data());
    DequantizeMatrixRow({type, 19, cols, rows.data()}, 17, got.data());
    EXPECT_EQ(got, want) << Traits(type).name;
  }
}

}  // namespace
}  // namespace thermocline::kernels
