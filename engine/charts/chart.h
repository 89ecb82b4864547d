// Charts as SVG text: lines, points and bars with axes, ticks and a legend. The command line's
// plots and the load tester's page are made of them.
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
  std::vector<std::pair<double, double>> points = {};  // x, y; bars stand at x, side by side
  std::string color = {};                              // as in CSS
  bool dashed = false;
};

struct Axis {
  std::string label = {};
  bool log = false;                          // points at or below zero are left out
  bool whole = false;                        // no ticks between whole numbers
  bool percent = false;                      // ticks of 0.25 read 25 %
  std::optional<double> min = {}, max = {};  // else those of the points, rounded
};

// A chart without points says that nothing was measured.
struct Chart {
  std::string title = {};
  Axis x = {}, y = {};
  std::vector<Series> series = {};
};

// A picture of its own: the charts side by side, `columns` in a row. Dark text on white; scales
// with the window.
std::string RenderPicture(std::span<const Chart> charts, int columns);

// One chart for the inside of a page, 560 by `height` pixels, in the page's style. Its classes are
// title, grid, frame, line, dots and legend.
std::string RenderInline(const Chart& chart, double height);

// `count` colours that tell series apart: a fixed few, then a scale from dark blue to yellow.
std::vector<std::string> Colors(int count);

}  // namespace thermocline::charts
