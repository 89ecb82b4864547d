// Charts as SVG text: lines, points and bars with axes, ticks and a legend.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace thermocline::tools {

struct PlotSeries {
  enum class Kind { kLine, kPoints, kBars };
  Kind kind = Kind::kLine;
  std::string label = {};                              // "" = not in the legend
  std::vector<std::pair<double, double>> points = {};  // x, y; bars stand at x, side by side
  std::string color = {};                              // as in CSS
  bool dashed = false;
};

struct PlotAxis {
  std::string label = {};
  bool log = false;                          // points at or below zero are left out
  bool whole = false;                        // no ticks between whole numbers
  bool percent = false;                      // ticks of 0.25 read 25 %
  std::optional<double> min = {}, max = {};  // else those of the points, rounded
};

struct Plot {
  std::string title;
  PlotAxis x = {}, y = {};
  std::vector<PlotSeries> series = {};
};

// The charts side by side, `columns` in a row. Dark text on white; scales with the window.
std::string RenderSvg(std::span<const Plot> plots, int columns);

// `count` colours that tell series apart: a fixed few, then a scale from dark blue to yellow.
std::vector<std::string> PlotColors(int count);

}  // namespace thermocline::tools
