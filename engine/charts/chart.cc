#include "engine/charts/chart.h"

#include <algorithm>
#include <cstdio>

#include "engine/base/index.h"
#include "engine/base/strings.h"
#include "engine/charts/escape.h"
#include "engine/charts/frame.h"
#include "engine/charts/legend.h"

namespace thermocline::charts {
namespace {

using Kind = Series::Kind;

constexpr double kPictureHeight = 400;  // of each chart of a picture
constexpr double kLegendLine = 17;
constexpr const char* kStyle =
    "<style>text{font:12px system-ui,sans-serif;fill:#24292f}.title{font-size:14px;"
    "font-weight:600}.grid{stroke:#e4e7eb}.frame{stroke:#8c959f;fill:none}"
    ".line{fill:none;stroke-width:1.8;stroke-linejoin:round}"
    ".legend{fill:#fff;fill-opacity:.85;stroke:#d0d7de}.dots{fill-opacity:.6}</style>\n";

std::string Pixel(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

class Drawing {
 public:
  Drawing(const Chart& chart, double height) : chart_(chart), frame_(chart, height) {}

  std::string Draw() {
    Text(Frame::kChartWidth / 2, 24, "middle", chart_.title, " class=\"title\"");
    if (IsEmpty()) {
      Text(Frame::kChartWidth / 2, Frame::kTop + frame_.height() / 2, "middle",
           "nothing was measured");
      return std::move(out_);
    }
    Grid();
    int bars = 0, bar = 0;
    for (const Series& series : chart_.series) bars += series.kind == Kind::kBars;
    for (const Series& series : chart_.series) {
      if (series.kind == Kind::kBars) Bars(series, bar++, bars);
      if (series.kind == Kind::kPoints) Points(series, 3, "");
      if (series.kind == Kind::kDots) Points(series, 2, " class=\"dots\"");
      if (series.kind == Kind::kLine) Line(series);
    }
    Legend();
    return std::move(out_);
  }

 private:
  bool IsEmpty() const {
    for (const Series& series : chart_.series) {
      for (const auto& [x, y] : series.points) {
        if (frame_.Has(x, y)) return false;
      }
    }
    return true;
  }

  void Text(double x, double y, const char* anchor, std::string_view text,
            std::string_view attributes = "") {
    out_ += StrCat("<text x=\"", Pixel(x), "\" y=\"", Pixel(y), "\" text-anchor=\"", anchor, "\"",
                   attributes, ">", EscapeMarkup(text), "</text>\n");
  }
  void Segment(double x1, double y1, double x2, double y2, const std::string& attributes) {
    out_ += StrCat("<line x1=\"", Pixel(x1), "\" y1=\"", Pixel(y1), "\" x2=\"", Pixel(x2),
                   "\" y2=\"", Pixel(y2), "\" ", attributes, "/>\n");
  }

  void Grid() {
    constexpr double kRight = Frame::kLeft + Frame::kWidth;
    for (const Scale::Tick& tick : frame_.x().ticks()) {
      const double x = Frame::kLeft + tick.at * Frame::kWidth;
      Segment(x, Frame::kTop, x, frame_.bottom(), "class=\"grid\"");
      Text(x, frame_.bottom() + 18, "middle", tick.text);
    }
    for (const Scale::Tick& tick : frame_.y().ticks()) {
      const double y = Frame::kTop + (1 - tick.at) * frame_.height();
      Segment(Frame::kLeft, y, kRight, y, "class=\"grid\"");
      Text(Frame::kLeft - 8, y + 4, "end", tick.text);
    }
    out_ += StrCat("<rect x=\"", Frame::kLeft, "\" y=\"", Frame::kTop, "\" width=\"", Frame::kWidth,
                   "\" height=\"", frame_.height(), "\" class=\"frame\"/>\n");
    Text(Frame::kLeft + Frame::kWidth / 2, frame_.chart_height() - 18, "middle", chart_.x.label);
    const double middle = Frame::kTop + frame_.height() / 2;
    Text(18, middle, "middle", chart_.y.label,
         StrCat(" transform=\"rotate(-90 18 ", Pixel(middle), ")\""));
  }

  void Line(const Series& series) {
    std::string points;
    for (const auto& [x, y] : series.points) {
      if (frame_.Has(x, y)) points += StrCat(Pixel(frame_.X(x)), ",", Pixel(frame_.Y(y)), " ");
    }
    out_ +=
        StrCat("<polyline class=\"line\" stroke=\"", series.color, "\"",
               series.dashed ? " stroke-dasharray=\"5 4\"" : "", " points=\"", points, "\"/>\n");
  }

  void Points(const Series& series, int radius, std::string_view attributes) {
    for (const auto& [x, y] : series.points) {
      if (!frame_.Has(x, y)) continue;
      out_ += StrCat("<circle cx=\"", Pixel(frame_.X(x)), "\" cy=\"", Pixel(frame_.Y(y)), "\" r=\"",
                     radius, "\" fill=\"", series.color, "\"", attributes, "/>\n");
    }
  }

  // Draws bar `index` of `count` in the unit interval around x.
  void Bars(const Series& series, int index, int count) {
    constexpr double kFilled = 0.8;  // of the unit
    const double width = kFilled / count;
    for (const auto& [x, y] : series.points) {
      if (!frame_.Has(x, y)) continue;
      const double from = frame_.X(x - kFilled / 2 + index * width),
                   to = frame_.X(x - kFilled / 2 + (index + 1) * width);
      out_ += StrCat("<rect x=\"", Pixel(from), "\" y=\"", Pixel(frame_.Y(y)), "\" width=\"",
                     Pixel(std::max(0.5, to - from - 0.5)), "\" height=\"",
                     Pixel(std::max(0.0, frame_.bottom() - frame_.Y(y))), "\" fill=\"",
                     series.color, "\"/>\n");
    }
  }

  void Legend() {
    std::vector<const Series*> shown;
    std::size_t longest = 0;
    for (const Series& series : chart_.series) {
      if (series.label.empty()) continue;
      shown.push_back(&series);
      longest = std::max(longest, series.label.size());
    }
    if (shown.empty()) return;
    const double width = 38 + 6.6 * static_cast<double>(longest);
    const double height = kLegendLine * base::IntSize(shown) + 8;
    const auto [left, top] = LegendCorner(chart_, frame_, width, height);
    out_ += StrCat("<rect x=\"", Pixel(left), "\" y=\"", Pixel(top), "\" width=\"", Pixel(width),
                   "\" height=\"", Pixel(height), "\" class=\"legend\"/>\n");
    double y = top + kLegendLine - 3;
    for (const Series* series : shown) {
      Segment(left + 8, y - 4, left + 26, y - 4,
              StrCat("stroke=\"", series->color, "\" stroke-width=\"",
                     series->kind == Kind::kLine ? "2\"" : "9\"",
                     series->dashed ? " stroke-dasharray=\"5 4\"" : ""));
      Text(left + 32, y, "start", series->label);
      y += kLegendLine;
    }
  }

  const Chart& chart_;
  const Frame frame_;
  std::string out_;
};

}  // namespace

std::string RenderPicture(std::span<const Chart> charts, int columns) {
  const int count = base::IntSize(charts);
  columns = std::clamp(columns, 1, std::max(1, count));
  const int rows = (count + columns - 1) / columns;
  const double width = columns * Frame::kChartWidth;
  std::string out = StrCat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", width, " ",
                           rows * kPictureHeight, "\" width=\"", width,
                           "\" style=\"max-width:100%;height:auto;background:#fff\">\n", kStyle,
                           "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n");
  for (int i = 0; i < count; ++i) {
    const int row = i / columns;
    out += StrCat("<g transform=\"translate(", Pixel(i % columns * Frame::kChartWidth), " ",
                  Pixel(row * kPictureHeight), ")\">\n", Drawing(charts[i], kPictureHeight).Draw(),
                  "</g>\n");
  }
  return out + "</svg>\n";
}

std::string RenderInline(const Chart& chart, double height) {
  return StrCat("<svg viewBox=\"0 0 ", Frame::kChartWidth, " ", height,
                "\" role=\"img\" aria-label=\"", EscapeMarkup(chart.title), "\">\n",
                Drawing(chart, height).Draw(), "</svg>\n");
}

}  // namespace thermocline::charts
