#include "engine/charts/frame.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

namespace thermocline::charts {
namespace {

std::string Short(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value == 0 ? 0 : value);  // no "-0"
  return text;
}

// Bars start at zero and are one unit wide.
Scale ScaleOf(const Chart& chart, const Axis& axis, bool is_x) {
  double min = std::numeric_limits<double>::infinity(), max = -min, margin = 0;
  for (const Series& series : chart.series) {
    const bool bars = series.kind == Series::Kind::kBars;
    if (bars && !is_x && !axis.log) min = std::min(min, 0.0), max = std::max(max, 0.0);
    if (bars && is_x) margin = 0.5;
    for (const auto& [x, y] : series.points) {
      const double value = is_x ? x : y;
      if (!std::isfinite(value) || (axis.log && value <= 0)) continue;
      min = std::min(min, value);
      max = std::max(max, value);
    }
  }
  return Scale(axis, min - margin, max + margin);
}

}  // namespace

Scale::Scale(const Axis& axis, double min, double max) : axis_(axis) {
  if (!(min <= max)) min = axis.log ? 1 : 0, max = 1;  // no points
  axis.log ? FitLog(min, max) : FitLinear(min, max);
}

bool Scale::Has(double value) const { return std::isfinite(value) && (!axis_.log || value > 0); }

double Scale::At(double value) const {
  const double place = axis_.log ? std::log10(value) : value;
  return std::clamp((place - low_) / (high_ - low_), -0.05, 1.05);
}

void Scale::FitLinear(double min, double max) {
  min = axis_.min.value_or(min);
  max = axis_.max.value_or(max);
  if (min >= max) max = min + 1;
  const double rough = (max - min) / 6, power = std::pow(10, std::floor(std::log10(rough)));
  double step = power * (rough > 5 * power ? 10 : rough > 2 * power ? 5 : rough > power ? 2 : 1);
  if (axis_.whole) step = std::max(1.0, step);
  low_ = axis_.min.value_or(std::floor(min / step) * step);
  high_ = axis_.max.value_or(std::ceil(max / step) * step);
  if (low_ >= high_) high_ = low_ + 1;
  for (double at = std::ceil(low_ / step - 1e-9);
       at * step <=
       high_ + 1e-9 * step;  // NOLINT(clang-analyzer-security.FloatLoopCounter): whole numbers
       at += 1)
    AddTick(at * step, at * step);
}

void Scale::FitLog(double min, double max) {
  low_ = axis_.min.has_value() ? std::log10(*axis_.min) : std::floor(std::log10(min) + 1e-9);
  high_ = axis_.max.has_value() ? std::log10(*axis_.max) : std::ceil(std::log10(max) - 1e-9);
  if (low_ >= high_) high_ = low_ + 1;
  const int step = std::max(1, static_cast<int>((high_ - low_) / 7));
  const auto last = static_cast<int>(std::floor(high_ + 1e-9));
  for (int power = static_cast<int>(std::ceil(low_ - 1e-9)); power <= last; power += step)
    AddTick(power, std::pow(10, power));
}

void Scale::AddTick(double place, double value) {
  ticks_.push_back(
      {(place - low_) / (high_ - low_), axis_.percent ? Short(100 * value) + " %" : Short(value)});
}

Frame::Frame(const Chart& chart, double chart_height)
    : chart_height_(chart_height),
      x_(ScaleOf(chart, chart.x, true)),
      y_(ScaleOf(chart, chart.y, false)) {}

}  // namespace thermocline::charts
