#include "engine/charts/legend.h"

#include <limits>

#include "engine/base/ratio.h"

namespace thermocline::charts {
namespace {

struct Box {
  double left, top, width, height;
};

// Number of points of one series, and of places along the lines between them, that the box would
// hide.
int CoveredOf(const Series& series, const Frame& frame, const Box& box) {
  constexpr int kSteps = 8;  // places along a line
  const bool bars = series.kind == Series::Kind::kBars;
  int covered = 0;
  double x_before = 0, y_before = 0;
  bool has_before = false;
  for (const auto& [x, y] : series.points) {
    if (!frame.Has(x, y)) continue;
    const double at_point_x = frame.X(x), at_point_y = frame.Y(y);
    const int steps = has_before && series.kind == Series::Kind::kLine ? kSteps : 1;
    for (int i = 1; i <= steps; ++i) {
      const double part = base::Ratio(i, steps);
      const double at_x = has_before ? x_before + part * (at_point_x - x_before) : at_point_x;
      const double at_y = has_before ? y_before + part * (at_point_y - y_before) : at_point_y;
      const bool beside = at_x < box.left - 9 || at_x > box.left + box.width + 9;
      const bool beyond = at_y > box.top + box.height + 6 || (!bars && at_y < box.top - 6);
      covered += beside || beyond ? 0 : 1;
    }
    x_before = at_point_x, y_before = at_point_y, has_before = true;
  }
  return covered;
}

}  // namespace

std::pair<double, double> LegendCorner(const Chart& chart, const Frame& frame, double width,
                                       double height) {
  constexpr double kGap = 8;
  std::pair<double, double> best;
  int fewest = std::numeric_limits<int>::max();
  for (const double top : {Frame::kTop + kGap, frame.bottom() - height - kGap}) {
    for (const double left : {Frame::kLeft + Frame::kWidth - width - kGap, Frame::kLeft + kGap}) {
      int covered = 0;
      for (const Series& series : chart.series)
        covered += CoveredOf(series, frame, {left, top, width, height});
      if (covered < fewest) fewest = covered, best = {left, top};
    }
  }
  return best;
}

}  // namespace thermocline::charts
