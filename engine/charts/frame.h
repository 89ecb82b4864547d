// The frame of a chart: converts values to pixels, and places ticks.
#pragma once

#include <string>
#include <vector>

#include "engine/charts/chart.h"

namespace thermocline::charts {

// Maps the values of an axis to [0, 1] along the frame. Borrows the axis.
class Scale {
 public:
  struct Tick {
    double at;  // 0 to 1
    std::string text;
  };

  // `min` and `max` are those of the points; without points, min > max.
  Scale(const Axis& axis, double min, double max);

  bool Has(double value) const;
  // A value far outside the axis is mapped to slightly outside the frame.
  double At(double value) const;
  const std::vector<Tick>& ticks() const { return ticks_; }

 private:
  void FitLinear(double min, double max);
  void FitLog(double min, double max);
  void AddTick(double place, double value);

  const Axis& axis_;
  double low_ = 0, high_ = 1;  // of values, or of their logarithms
  std::vector<Tick> ticks_;
};

// Borrows the chart.
class Frame {
 public:
  static constexpr double kChartWidth = 560;
  static constexpr double kLeft = 72, kRight = 20, kTop = 44, kBottom = 58;  // around the frame
  static constexpr double kWidth = kChartWidth - kLeft - kRight;

  Frame(const Chart& chart, double chart_height);

  bool Has(double x, double y) const { return x_.Has(x) && y_.Has(y); }
  double X(double value) const { return kLeft + x_.At(value) * kWidth; }
  double Y(double value) const { return kTop + (1 - y_.At(value)) * height(); }
  double height() const { return chart_height_ - kTop - kBottom; }
  double chart_height() const { return chart_height_; }
  double bottom() const { return kTop + height(); }
  const Scale& x() const { return x_; }
  const Scale& y() const { return y_; }

 private:
  double chart_height_;
  Scale x_, y_;
};

}  // namespace thermocline::charts
