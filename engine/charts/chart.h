// Charts as SVG text: lines, points and bars with axes, ticks and a legend. Used by the command
// line's plots and the load tester's page.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace thermocline::charts {

struct Series {
  enum class Kind {
    kLine,
    kPoints,
    kDots,  // small and translucent, for thousands of points
    kBars,
  };
  Kind kind = Kind::kLine;
  std::string label = {};                              // "" = not in the legend
  std::vector<std::pair<double, double>> points = {};  // x, y; bars are centred at x, side by side
  std::string color = {};                              // a CSS colour
  bool dashed = false;
};

struct Axis {
  std::string label = {};
  bool log = false;                          // points at or below zero are left out
  bool whole = false;                        // no ticks between whole numbers
  bool percent = false;                      // ticks of 0.25 read 25 %
  std::optional<double> min = {}, max = {};  // default: those of the points, rounded
};

// A chart without points shows that nothing was measured.
struct Chart {
  std::string title = {};
  Axis x = {}, y = {};
  std::vector<Series> series = {};
};

// A standalone picture: the charts side by side, `columns` per row. Dark text on white; scales with
// the window.
std::string RenderPicture(std::span<const Chart> charts, int columns);

// One chart for embedding in a page, 560 by `height` pixels, in the page's style. Its classes are
// title, grid, frame, line, dots and legend.
std::string RenderInline(const Chart& chart, double height);

// `count` distinguishable colours: a fixed few, then a scale from dark blue to yellow.
std::vector<std::string> Colors(int count);

}  // namespace thermocline::charts
