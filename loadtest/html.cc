#include "loadtest/html.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "engine/base/strings.h"

namespace thermocline::loadtest {
namespace {

constexpr double kWidth = 560, kHeight = 300, kLeft = 64, kRight = 14, kTop = 34, kBottom = 46;
constexpr double kInnerWidth = kWidth - kLeft - kRight, kInnerHeight = kHeight - kTop - kBottom;

std::string Fixed(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

std::string Short(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", value);
  return text;
}

// From values to [0, 1]; linear from zero, or logarithmic from power of ten to power of ten.
class ChartScale {
 public:
  struct Tick {
    double at, value;
  };

  explicit ChartScale(bool log) : log_(log) {}
  bool Has(double value) const { return std::isfinite(value) && (!log_ || value > 0); }
  void Cover(double value) {
    if (!Has(value)) return;
    low_ = empty_ ? value : std::min(low_, value);
    high_ = empty_ ? value : std::max(high_, value);
    empty_ = false;
  }
  bool empty() const { return empty_; }

  void Fit() {
    log_ ? FitLog() : FitLinear();
    if (!(high_ > low_)) high_ = low_ + 1;
    for (Tick& tick : ticks_) tick.at = (Place(tick.value) - low_) / (high_ - low_);
  }
  double At(double value) const { return (Place(value) - low_) / (high_ - low_); }
  const std::vector<Tick>& ticks() const { return ticks_; }

 private:
  double Place(double value) const { return log_ ? std::log10(value) : value; }

  void FitLinear() {
    low_ = std::min(0.0, low_);
    const double span = high_ > low_ ? high_ - low_ : 1;
    const double power = std::pow(10, std::floor(std::log10(span / 5)));
    const double rough = span / 5 / power;
    const double step = power * (rough > 5 ? 10 : rough > 2 ? 5 : rough > 1 ? 2 : 1);
    const int first = static_cast<int>(std::floor(low_ / step)),
              count = static_cast<int>(std::ceil(span / step - 1e-9));
    low_ = first * step;
    high_ = (first + count) * step;
    for (int i = 0; i <= count; ++i) ticks_.push_back({.at = 0, .value = (first + i) * step});
  }

  void FitLog() {
    low_ = std::floor(std::log10(low_) + 1e-9);
    high_ = std::max(low_ + 1, std::ceil(std::log10(high_) - 1e-9));
    for (int power = static_cast<int>(low_); power <= static_cast<int>(high_); ++power)
      ticks_.push_back({.at = 0, .value = std::pow(10, power)});
  }

  const bool log_;
  bool empty_ = true;
  double low_ = 0, high_ = 0;  // of values, after Fit of places
  std::vector<Tick> ticks_;
};

class ChartWriter {
 public:
  explicit ChartWriter(const Chart& chart) : chart_(chart), x_(chart.x_log), y_(chart.y_log) {
    for (const ChartSeries& series : chart.series) {
      for (const auto& [x, y] : series.points) {
        if (!x_.Has(x) || !y_.Has(y)) continue;
        x_.Cover(x);
        y_.Cover(y);
      }
    }
  }

  std::string Write() {
    out_ = StrCat("<svg viewBox=\"0 0 ", kWidth, " ", kHeight, "\" role=\"img\" aria-label=\"",
                  EscapeHtml(chart_.title), "\">\n");
    Text(kLeft, 18, "start", chart_.title, "title");
    if (x_.empty()) {
      Text(kLeft + kInnerWidth / 2, kTop + kInnerHeight / 2, "middle", "nothing was measured", "");
      return out_ + "</svg>\n";
    }
    x_.Fit();
    y_.Fit();
    Grid();
    for (std::size_t i = 0; i < chart_.series.size(); ++i)
      chart_.series[i].dots ? Dots(chart_.series[i], i) : Line(chart_.series[i], i);
    Legend();
    return out_ + "</svg>\n";
  }

 private:
  double X(double value) const { return kLeft + x_.At(value) * kInnerWidth; }
  double Y(double value) const { return kTop + (1 - y_.At(value)) * kInnerHeight; }
  static std::string Color(std::size_t series) { return StrCat("var(--c", series % 6, ")"); }

  void Text(double x, double y, const char* anchor, std::string_view text,
            std::string_view css_class) {
    out_ += StrCat("<text x=\"", Fixed(x), "\" y=\"", Fixed(y), "\" text-anchor=\"", anchor,
                   "\" class=\"", css_class, "\">", EscapeHtml(text), "</text>\n");
  }
  void GridLine(double x1, double y1, double x2, double y2) {
    out_ += StrCat("<line class=\"grid\" x1=\"", Fixed(x1), "\" y1=\"", Fixed(y1), "\" x2=\"",
                   Fixed(x2), "\" y2=\"", Fixed(y2), "\"/>\n");
  }

  void Grid() {
    const double bottom = kTop + kInnerHeight;
    for (const auto& tick : x_.ticks()) {
      const double x = kLeft + tick.at * kInnerWidth;
      GridLine(x, kTop, x, bottom);
      Text(x, bottom + 16, "middle", Short(tick.value), "tick");
    }
    for (const auto& tick : y_.ticks()) {
      const double y = kTop + (1 - tick.at) * kInnerHeight;
      GridLine(kLeft, y, kLeft + kInnerWidth, y);
      Text(kLeft - 6, y + 4, "end", Short(tick.value), "tick");
    }
    Text(kLeft + kInnerWidth, kHeight - 8, "end", chart_.x_label, "label");
    Text(kWidth - kRight, 18, "end", chart_.y_label, "label");
  }

  void Line(const ChartSeries& series, std::size_t index) {
    std::string points;
    for (const auto& [x, y] : series.points) {
      if (x_.Has(x) && y_.Has(y)) points += StrCat(Fixed(X(x)), ",", Fixed(Y(y)), " ");
    }
    out_ += StrCat("<polyline fill=\"none\" stroke-width=\"2\" stroke=\"", Color(index),
                   "\" points=\"", points, "\"/>\n");
  }

  void Dots(const ChartSeries& series, std::size_t index) {
    out_ += StrCat("<g fill=\"", Color(index), "\" fill-opacity=\"0.6\">\n");
    for (const auto& [x, y] : series.points) {
      if (x_.Has(x) && y_.Has(y))
        out_ += StrCat("<circle r=\"2\" cx=\"", Fixed(X(x)), "\" cy=\"", Fixed(Y(y)), "\"/>\n");
    }
    out_ += "</g>\n";
  }

  // One line below the frame.
  void Legend() {
    double x = kLeft;
    for (std::size_t i = 0; i < chart_.series.size(); ++i) {
      if (chart_.series[i].label.empty()) continue;
      out_ += StrCat("<rect x=\"", Fixed(x), "\" y=\"", Fixed(kHeight - 17),
                     "\" width=\"10\" height=\"10\" rx=\"2\" fill=\"", Color(i), "\"/>\n");
      Text(x + 14, kHeight - 8, "start", chart_.series[i].label, "label");
      x += 28 + 6.5 * static_cast<double>(chart_.series[i].label.size());
    }
  }

  const Chart& chart_;
  ChartScale x_, y_;
  std::string out_;
};

}  // namespace

std::string EscapeHtml(std::string_view text) {
  std::string out;
  for (const char c : base::ReplaceInvalidUtf8(text)) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        // Control characters have no place in a page.
        out += static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t' ? ' ' : c;
    }
  }
  return out;
}

std::string RenderChart(const Chart& chart) { return ChartWriter(chart).Write(); }

}  // namespace thermocline::loadtest
