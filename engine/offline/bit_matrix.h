// A matrix of bits: the neurons (columns) that were active for each token (rows).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace thermocline::offline {

// Rows are padded with zeros to whole words.
class BitMatrix {
 public:
  BitMatrix() = default;
  BitMatrix(int rows, int cols)
      : rows_(rows),
        cols_(cols),
        words_per_row_(static_cast<std::size_t>((cols + 63) / 64)),
        words_(rows * words_per_row_) {}

  int rows() const { return rows_; }
  int cols() const { return cols_; }
  bool Get(int row, int col) const { return (words_[Word(row, col)] >> (col % 64) & 1) != 0; }
  void Set(int row, int col) { words_[Word(row, col)] |= std::uint64_t{1} << (col % 64); }

  std::span<const std::uint64_t> row(int row) const {
    return std::span(words_).subspan(row * words_per_row_, words_per_row_);
  }
  std::int64_t CountRow(int r) const {
    std::int64_t count = 0;
    for (const std::uint64_t word : row(r)) count += std::popcount(word);
    return count;
  }
  std::int64_t Count() const {
    std::int64_t count = 0;
    for (const std::uint64_t word : words_) count += std::popcount(word);
    return count;
  }
  // Calls body(col) for each bit of the row that is set, in order.
  template <typename Body>
  void ForSet(int r, const Body& body) const {
    int base = 0;
    for (std::uint64_t word : row(r)) {
      for (; word != 0; word &= word - 1) body(base + std::countr_zero(word));
      base += 64;
    }
  }
  std::size_t bytes() const { return words_.size() * sizeof(std::uint64_t); }

 private:
  std::size_t Word(int row, int col) const { return row * words_per_row_ + (col / 64); }

  int rows_ = 0, cols_ = 0;
  std::size_t words_per_row_ = 0;
  std::vector<std::uint64_t> words_;
};

}  // namespace thermocline::offline
