// Pieces of an HTML page. Text becomes HTML only through Escape.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace thermocline::loadtest {

// Text for elements and quoted attributes: markup, control characters and ill-formed UTF-8 are made
// harmless.
std::string EscapeHtml(std::string_view text);

struct ChartSeries {
  std::string label = {};
  std::vector<std::pair<double, double>> points = {};
  bool dots = false;  // else a line
};

struct Chart {
  std::string title = {}, x_label = {}, y_label = {};
  std::vector<ChartSeries> series = {};
  bool x_log = false, y_log = false;  // points at or below zero are left out
};

// Inline SVG in the page's colours (variables --c0, --c1, ... of its style). A chart without points
// says so.
std::string RenderChart(const Chart& chart);

}  // namespace thermocline::loadtest
