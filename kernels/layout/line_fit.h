// Least-squares scales (and mins) of a few columns for a given number of levels: the real numbers
// that block quantisers then round to their format's numbers.
//
// All sums are in double, where fourth powers of any float are finite: nothing overflows or divides
// by zero, whatever the finite columns.
//
// Source: trying several steps per sub-block, and letting large columns weigh more, are ideas of
// ggml's quantisation without an importance matrix; search, weights and rounding are our own.
#pragma once

namespace thermocline::kernels {

inline constexpr int kMaxSubColumns = 32;

// x is near scale * level + min.
struct Line {
  double scale = 0, min = 0;
};

// Columns that share a line. Each weighs x^2 + mean(x^2): large weights matter more, but small ones
// are not free. With the importance of each column (the mean square of its inputs) it weighs
// importance times the root of that. Source: ggml's weights with an importance matrix.
struct SubBlock {
  const float* x = nullptr;
  int columns = 0;
  double weight[kMaxSubColumns] = {};
};
// `importance` [columns] or null.
SubBlock Weigh(const float* x, int columns, const float* importance);

enum class MinSign { kAny, kNeverPositive };

// The line of near least weighted error for levels 0..max_level; scale >= 0.
Line FitLine(const SubBlock& block, int max_level, MinSign sign);

// The scale of near least weighted error of x = scale * (level - zero), levels 0..2 zero - 1.
double FitScale(const SubBlock& block, int zero);

// Weighted square error of the columns after rounding to levels 0..max_level of `line`.
double SquareError(const SubBlock& block, const Line& line, int max_level);

// A scale of 0 sends every column to level 0 instead of dividing by it.
inline double Inverse(double scale) { return scale == 0 ? 0 : 1 / scale; }

inline int RoundLevel(double value, int max_level) {
  if (!(value > 0)) return 0;
  // NOLINTNEXTLINE(bugprone-incorrect-roundings): the formats' rule, and faster than lround
  return value < max_level ? static_cast<int>(value + 0.5) : max_level;
}

// `value` rounded to -zero..zero-1, plus `zero`: the level of a signed number.
inline int RoundSigned(double value, int zero) { return RoundLevel(value + zero, 2 * zero - 1); }

}  // namespace thermocline::kernels
