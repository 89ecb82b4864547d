#include "engine/tools/common/svg_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

#include "engine/base/index.h"
#include "engine/base/strings.h"

namespace thermocline::tools {
namespace {

// Pixels of one chart and of the frame inside it.
constexpr double kWidth = 560, kHeight = 400;
constexpr double kLeft = 72, kRight = 20, kTop = 44, kBottom = 58;
constexpr double kFrameWidth = kWidth - kLeft - kRight, kFrameHeight = kHeight - kTop - kBottom;
constexpr double kLegendLine = 17;
constexpr const char* kStyle =
    "<style>text{font:12px system-ui,sans-serif;fill:#24292f}.title{font-size:14px;"
    "font-weight:600}.grid{stroke:#e4e7eb}.frame{stroke:#8c959f;fill:none}"
    ".line{fill:none;stroke-width:1.8;stroke-linejoin:round}</style>\n";

std::string Escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out.push_back(c);
    }
  }
  return out;
}

std::string Pixel(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

std::string Short(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value == 0 ? 0 : value);  // no "-0"
  return text;
}

// One axis: from values to [0, 1] along the frame, and where its ticks are.
class Scale {
 public:
  Scale(const PlotAxis& axis, double min, double max) : axis_(axis) {
    if (!(min <= max)) min = axis.log ? 1 : 0, max = 1;  // no points
    axis.log ? FitLog(min, max) : FitLinear(min, max);
  }

  bool Has(double value) const { return std::isfinite(value) && (!axis_.log || value > 0); }
  double At(double value) const {
    const double place = axis_.log ? std::log10(value) : value;
    return std::clamp((place - low_) / (high_ - low_), -0.05, 1.05);
  }
  struct Tick {
    double at;  // 0 to 1
    std::string text;
  };
  const std::vector<Tick>& ticks() const { return ticks_; }

 private:
  void FitLinear(double min, double max) {
    if (min == max) max = min + 1;
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
  void FitLog(double min, double max) {
    low_ = axis_.min.has_value() ? std::log10(*axis_.min) : std::floor(std::log10(min) + 1e-9);
    high_ = axis_.max.has_value() ? std::log10(*axis_.max) : std::ceil(std::log10(max) - 1e-9);
    if (low_ >= high_) high_ = low_ + 1;
    const int step = std::max(1, static_cast<int>((high_ - low_) / 7));
    const auto last = static_cast<int>(std::floor(high_ + 1e-9));
    for (int power = static_cast<int>(std::ceil(low_ - 1e-9)); power <= last; power += step)
      AddTick(power, std::pow(10, power));
  }
  void AddTick(double place, double value) {
    ticks_.push_back({(place - low_) / (high_ - low_),
                      axis_.percent ? Short(100 * value) + " %" : Short(value)});
  }

  const PlotAxis& axis_;
  double low_ = 0, high_ = 1;  // of values, or of their logarithms
  std::vector<Tick> ticks_;
};

class Chart {
 public:
  explicit Chart(const Plot& plot)
      : plot_(plot), x_(MakeScale(plot.x, true)), y_(MakeScale(plot.y, false)) {}

  std::string Render(double left, double top) {
    out_ = StrCat("<g transform=\"translate(", Pixel(left), " ", Pixel(top), ")\">\n");
    Text(kWidth / 2, 24, "middle", plot_.title, " class=\"title\"");
    Grid();
    int bars = 0;
    for (const PlotSeries& series : plot_.series) bars += series.kind == PlotSeries::Kind::kBars;
    int bar = 0;
    for (const PlotSeries& series : plot_.series) {
      if (series.kind == PlotSeries::Kind::kBars) Bars(series, bar++, bars);
      if (series.kind == PlotSeries::Kind::kPoints) Points(series);
      if (series.kind == PlotSeries::Kind::kLine) Line(series);
    }
    Legend();
    return out_ + "</g>\n";
  }

 private:
  Scale MakeScale(const PlotAxis& axis, bool is_x) const {
    double min = std::numeric_limits<double>::infinity(), max = -min, margin = 0;
    for (const PlotSeries& series : plot_.series) {
      const bool bars = series.kind == PlotSeries::Kind::kBars;
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
  double X(double value) const { return kLeft + x_.At(value) * kFrameWidth; }
  double Y(double value) const { return kTop + (1 - y_.At(value)) * kFrameHeight; }

  void Text(double x, double y, const char* anchor, std::string_view text,
            std::string_view attributes = "") {
    out_ += StrCat("<text x=\"", Pixel(x), "\" y=\"", Pixel(y), "\" text-anchor=\"", anchor, "\"",
                   attributes, ">", Escape(text), "</text>\n");
  }
  void Segment(double x1, double y1, double x2, double y2, const std::string& attributes) {
    out_ += StrCat("<line x1=\"", Pixel(x1), "\" y1=\"", Pixel(y1), "\" x2=\"", Pixel(x2),
                   "\" y2=\"", Pixel(y2), "\" ", attributes, "/>\n");
  }

  void Grid() {
    const double bottom = kTop + kFrameHeight, right = kLeft + kFrameWidth;
    for (const Scale::Tick& tick : x_.ticks()) {
      const double x = kLeft + tick.at * kFrameWidth;
      Segment(x, kTop, x, bottom, "class=\"grid\"");
      Text(x, bottom + 18, "middle", tick.text);
    }
    for (const Scale::Tick& tick : y_.ticks()) {
      const double y = kTop + (1 - tick.at) * kFrameHeight;
      Segment(kLeft, y, right, y, "class=\"grid\"");
      Text(kLeft - 8, y + 4, "end", tick.text);
    }
    out_ += StrCat("<rect x=\"", kLeft, "\" y=\"", kTop, "\" width=\"", kFrameWidth, "\" height=\"",
                   kFrameHeight, "\" class=\"frame\"/>\n");
    Text(kLeft + kFrameWidth / 2, kHeight - 18, "middle", plot_.x.label);
    const double middle = kTop + kFrameHeight / 2;
    Text(18, middle, "middle", plot_.y.label,
         StrCat(" transform=\"rotate(-90 18 ", Pixel(middle), ")\""));
  }

  void Line(const PlotSeries& series) {
    std::string points;
    for (const auto& [x, y] : series.points) {
      if (x_.Has(x) && y_.Has(y)) points += StrCat(Pixel(X(x)), ",", Pixel(Y(y)), " ");
    }
    out_ +=
        StrCat("<polyline class=\"line\" stroke=\"", series.color, "\"",
               series.dashed ? " stroke-dasharray=\"5 4\"" : "", " points=\"", points, "\"/>\n");
  }

  void Points(const PlotSeries& series) {
    for (const auto& [x, y] : series.points) {
      if (!x_.Has(x) || !y_.Has(y)) continue;
      out_ += StrCat("<circle cx=\"", Pixel(X(x)), "\" cy=\"", Pixel(Y(y)), "\" r=\"3\" fill=\"",
                     series.color, "\"/>\n");
    }
  }

  // Bar `index` of `count` in the unit around x.
  void Bars(const PlotSeries& series, int index, int count) {
    constexpr double kFilled = 0.8;  // of the unit
    const double width = kFilled / count, bottom = kTop + kFrameHeight;
    for (const auto& [x, y] : series.points) {
      if (!y_.Has(y)) continue;
      const double from = X(x - kFilled / 2 + index * width),
                   to = X(x - kFilled / 2 + (index + 1) * width);
      out_ += StrCat("<rect x=\"", Pixel(from), "\" y=\"", Pixel(Y(y)), "\" width=\"",
                     Pixel(std::max(0.5, to - from - 0.5)), "\" height=\"",
                     Pixel(std::max(0.0, bottom - Y(y))), "\" fill=\"", series.color, "\"/>\n");
    }
  }

  // In the corner of the frame where the fewest points are.
  void Legend() {
    std::vector<const PlotSeries*> shown;
    std::size_t longest = 0;
    for (const PlotSeries& series : plot_.series) {
      if (series.label.empty()) continue;
      shown.push_back(&series);
      longest = std::max(longest, series.label.size());
    }
    if (shown.empty()) return;
    const double width = 38 + 6.6 * static_cast<double>(longest);
    const double height = kLegendLine * static_cast<double>(shown.size()) + 8;
    const auto [left, top] = LegendCorner(width, height);
    out_ += StrCat("<rect x=\"", Pixel(left), "\" y=\"", Pixel(top), "\" width=\"", Pixel(width),
                   "\" height=\"", Pixel(height),
                   "\" fill=\"#fff\" fill-opacity=\"0.85\" stroke=\"#d0d7de\"/>\n");
    double y = top + kLegendLine - 3;
    for (const PlotSeries* series : shown) {
      Segment(left + 8, y - 4, left + 26, y - 4,
              StrCat("stroke=\"", series->color, "\" stroke-width=\"",
                     series->kind == PlotSeries::Kind::kLine ? "2\"" : "9\"",
                     series->dashed ? " stroke-dasharray=\"5 4\"" : ""));
      Text(left + 32, y, "start", series->label);
      y += kLegendLine;
    }
  }

  std::pair<double, double> LegendCorner(double width, double height) const {
    constexpr double kGap = 8;
    std::pair<double, double> best;
    int fewest = std::numeric_limits<int>::max();
    for (const double top : {kTop + kGap, kTop + kFrameHeight - height - kGap}) {
      for (const double left : {kLeft + kFrameWidth - width - kGap, kLeft + kGap}) {
        const int covered = Covered(left, top, width, height);
        if (covered < fewest) fewest = covered, best = {left, top};
      }
    }
    return best;
  }
  // Points, and places along the lines between them, that a box would hide.
  int Covered(double left, double top, double width, double height) const {
    int covered = 0;
    for (const PlotSeries& series : plot_.series) {
      const bool bars = series.kind == PlotSeries::Kind::kBars;
      double x_before = 0, y_before = 0;
      bool has_before = false;
      for (const auto& [x, y] : series.points) {
        if (!x_.Has(x) || !y_.Has(y)) continue;
        constexpr int kSteps = 8;
        const int steps = has_before && series.kind == PlotSeries::Kind::kLine ? kSteps : 1;
        for (int i = 1; i <= steps; ++i) {
          const double part = static_cast<double>(i) / steps;
          const double at_x = has_before ? x_before + part * (X(x) - x_before) : X(x);
          const double at_y = has_before ? y_before + part * (Y(y) - y_before) : Y(y);
          const bool beside = at_x < left - 9 || at_x > left + width + 9;
          const bool beyond = at_y > top + height + 6 || (!bars && at_y < top - 6);
          covered += beside || beyond ? 0 : 1;
        }
        x_before = X(x), y_before = Y(y), has_before = true;
      }
    }
    return covered;
  }

  const Plot& plot_;
  Scale x_, y_;
  std::string out_;
};

}  // namespace

std::string RenderSvg(std::span<const Plot> plots, int columns) {
  const int count = base::IntSize(plots);
  columns = std::clamp(columns, 1, std::max(1, count));
  const int rows = (count + columns - 1) / columns;
  const std::string size = StrCat(columns * kWidth, " ", rows * kHeight);
  std::string out =
      StrCat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", size, "\" width=\"",
             columns * kWidth, "\" style=\"max-width:100%;height:auto;background:#fff\">\n", kStyle,
             "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n");
  for (int i = 0; i < count; ++i) {
    const int row = i / columns;
    out += Chart(plots[i]).Render(i % columns * kWidth, row * kHeight);
  }
  return out + "</svg>\n";
}

std::vector<std::string> PlotColors(int count) {
  static constexpr std::array kFew = {"#0969da", "#cf222e", "#1a7f37",
                                      "#bf8700", "#8250df", "#d4a72c"};
  struct Rgb {
    double r, g, b;
  };
  // Source: five of matplotlib's viridis, near enough.
  static constexpr std::array kScale = {Rgb{68, 1, 84}, Rgb{59, 82, 139}, Rgb{33, 145, 140},
                                        Rgb{94, 201, 98}, Rgb{220, 205, 50}};
  std::vector<std::string> colors;
  for (int i = 0; i < count; ++i) {
    if (count <= 3) {
      colors.emplace_back(kFew[i]);
      continue;
    }
    const double at = static_cast<double>(i) / (count - 1) * (kScale.size() - 1);
    const auto below = std::min(static_cast<std::size_t>(at), kScale.size() - 2);
    const double part = at - static_cast<double>(below);
    const Rgb &a = kScale[below], &b = kScale[below + 1];
    char text[16];
    std::snprintf(text, sizeof(text), "#%02x%02x%02x",
                  static_cast<unsigned>(a.r + part * (b.r - a.r)),
                  static_cast<unsigned>(a.g + part * (b.g - a.g)),
                  static_cast<unsigned>(a.b + part * (b.b - a.b)));
    colors.emplace_back(text);
  }
  return colors;
}

}  // namespace thermocline::tools
