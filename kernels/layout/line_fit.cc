// Weighted least squares over a few guesses of the step.
#include "kernels/layout/line_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace thermocline::kernels {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Guesses of the step spread the columns' range over this many levels more than there are: above 0
// the step is finer and clips the extremes, below 0 it is coarser; which is best depends on where
// the columns happen to lie. A grid twice as fine lowers the error by below 0.3% (measured, all
// types, Gaussian columns) for twice the time.
constexpr double kExtraLevels[] = {-1, -0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75, 1};

// Weighted sums of products of levels l and columns x; w is the weight itself.
struct Sums {
  double w = 0, l = 0, ll = 0, x = 0, xl = 0, xx = 0;
};

Sums SumLevels(const SubBlock& block, const Line& line, int max_level) {
  Sums sums;
  const double inverse = Inverse(line.scale);
  for (int i = 0; i < block.columns; ++i) {
    const double w = block.weight[i], x = block.x[i];
    const double l = RoundLevel((x - line.min) * inverse, max_level);
    sums.w += w;
    sums.l += w * l;
    sums.ll += w * l * l;
    sums.x += w * x;
    sums.xl += w * x * l;
    sums.xx += w * x * x;
  }
  return sums;
}

// Returns the error of the levels in `sums` read back by `line`.
double Error(const Sums& sums, const Line& line) {
  return sums.xx - 2 * line.scale * sums.xl - 2 * line.min * sums.x +
         line.scale * line.scale * sums.ll + 2 * line.scale * line.min * sums.l +
         line.min * line.min * sums.w;
}

Line SolveLine(const Sums& s, MinSign sign) {
  const double determinant = s.w * s.ll - s.l * s.l;
  if (determinant > 0) {
    const Line line{(s.w * s.xl - s.l * s.x) / determinant,
                    (s.ll * s.x - s.l * s.xl) / determinant};
    if (line.min <= 0 || sign == MinSign::kAny) return line;
  }
  return {s.xl * Inverse(s.ll), 0};
}

}  // namespace

SubBlock Weigh(const float* x, int columns, const float* importance) {
  SubBlock block{x, columns, {}};
  double sum = 0;
  for (int i = 0; i < columns; ++i) sum += static_cast<double>(x[i]) * x[i];
  for (int i = 0; i < columns; ++i) {
    const double own = static_cast<double>(x[i]) * x[i] + sum / columns;
    block.weight[i] = importance == nullptr ? own : importance[i] * std::sqrt(own);
  }
  return block;
}

Line FitLine(const SubBlock& block, int max_level, MinSign sign) {
  const auto [smallest, largest] = std::minmax_element(block.x, block.x + block.columns);
  const double low = sign == MinSign::kAny ? *smallest : std::min(*smallest, 0.0F);
  const double range = *largest - low;
  Line best{0, low};
  if (range == 0) return best;
  double best_error = kInfinity;
  for (const double extra : kExtraLevels) {
    const Sums sums = SumLevels(block, {range / (max_level + extra), low}, max_level);
    const Line line = SolveLine(sums, sign);
    if (const double error = Error(sums, line); error < best_error) {
      best_error = error;
      best = line;
    }
  }
  return best;
}

// The column of largest magnitude lies near level 0, the end of the range that is one level longer;
// the scale's sign puts it there.
double FitScale(const SubBlock& block, int zero) {
  const double extreme = *std::max_element(block.x, block.x + block.columns, [](float a, float b) {
    return std::fabs(a) < std::fabs(b);
  });
  double best = 0, best_error = kInfinity;
  if (extreme == 0) return best;
  for (const double extra : kExtraLevels) {
    const double guess = -extreme / (zero + extra);
    const Sums s = SumLevels(block, {guess, -zero * guess}, 2 * zero - 1);
    const double scale = (s.xl - zero * s.x) / (s.ll - 2 * zero * s.l + zero * zero * s.w);
    if (const double error = Error(s, {scale, -zero * scale}); error < best_error) {
      best_error = error;
      best = scale;
    }
  }
  return best;
}

double SquareError(const SubBlock& block, const Line& line, int max_level) {
  return Error(SumLevels(block, line, max_level), line);
}

}  // namespace thermocline::kernels
