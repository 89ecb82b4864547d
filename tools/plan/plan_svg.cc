#include <algorithm>
#include <cstdio>

#include "engine/base/index.h"
#include "engine/base/strings.h"
#include "engine/charts/escape.h"
#include "tools/plan/plan_report.h"

namespace thermocline::tools {
namespace {

using placement::LayerPlacement;

// Sizes in pixels.
constexpr double kLeft = 70, kTop = 84, kRow = 56, kWidth = 900, kTimes = 200, kGap = 50;
constexpr const char* kRows[] = {"hot", "RAM", "flash", "load"};
constexpr const char* kParts[] = {"home", "networks", "sync", "flash"};
constexpr const char* kColors[] = {"#8c8c8c", "#56b4e9", "#e69f00", "#d55e00"};

std::string Format(const char* format, auto... values) {
  char text[400];
  std::snprintf(text, sizeof(text), format, values...);
  return text;
}

// From white to dark blue.
std::string Color(double share) {
  const auto mix = [&](double from, double to) {
    return static_cast<int>(from + (to - from) * std::clamp(share, 0.0, 1.0));
  };
  return Format("#%02x%02x%02x", mix(247, 8), mix(251, 48), mix(255, 107));
}

double Share(const LayerPlacement& l, int row) {
  const auto all = static_cast<double>(l.hot + l.memory + l.flash);
  const std::int64_t parts[] = {l.hot, l.memory, l.flash};
  if (row < 3) return static_cast<double>(parts[row]) / all;
  return l.active > 0 ? l.active_hot / l.active : 0;
}

std::string Text(double x, double y, const char* anchor, const std::string& text) {
  return Format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor) + text +
         "</text>\n";
}

std::string HeatMap(const placement::Placement& p, double column) {
  std::string out;
  for (int row = 0; row < 4; ++row) {
    const double y = kTop + row * kRow + (row == 3 ? 12 : 0);
    out += Text(kLeft - 8, y + kRow / 2 + 4, "end", kRows[row]);
    for (int l = 0; l < base::IntSize(p.layers); ++l) {
      const double share = Share(p.layers[l], row);
      out += Format(
          "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\" "
          "stroke=\"#d0d7de\" stroke-width=\"0.5\"><title>layer %d, %s: %.1f%%</title></rect>\n",
          kLeft + l * column, y, column, kRow, Color(share).c_str(), l, kRows[row], 100 * share);
      if (column > 30)
        out += Format(
            "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" style=\"fill:%s\">%.0f%%"
            "</text>\n",
            kLeft + (l + 0.5) * column, y + kRow / 2 + 4, share > 0.5 ? "#ffffff" : "#24292f",
            100 * share);
    }
  }
  return out;
}

std::string Times(const placement::Placement& p, double column, double top) {
  double most = 0;
  for (const LayerPlacement& l : p.layers) most = std::max(most, l.token_s());
  std::string out;
  for (int i = 0; i < base::IntSize(p.layers); ++i) {
    const LayerPlacement& l = p.layers[i];
    const double parts[] = {l.home_s, std::max(l.hot_s, l.cold_s), l.sync_s, l.flash_s};
    double y = top + kTimes;
    for (int part = 0; part < 4; ++part) {
      const double height = kTimes * parts[part] / most;
      y -= height;
      out += Format(
          "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"><title>layer "
          "%d, %s: %.3f ms</title></rect>\n",
          kLeft + (i + 0.1) * column, y, 0.8 * column, height, kColors[part], i, kParts[part],
          1e3 * parts[part]);
    }
  }
  out += Text(kLeft - 8, top + 10, "end", Format("%.2f ms", 1e3 * most));
  out += Text(kLeft - 8, top + kTimes, "end", "0");
  for (int part = 0; part < 4; ++part) {
    const double x = kLeft + part * 110;
    out += Format("<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", x,
                  top + kTimes + 34, kColors[part]);
    out += Text(x + 18, top + kTimes + 44, "start", kParts[part]);
  }
  return out;
}

std::string LayerTicks(std::size_t layers, double column, double y) {
  std::string out;
  const std::size_t every = std::max<std::size_t>(1, (layers + 19) / 20);
  for (std::size_t l = 0; l < layers; l += every)
    out += Text(kLeft + (static_cast<double>(l) + 0.5) * column, y, "middle", StrCat(l));
  return out;
}

// A line under the title with the layers' homes.
std::string Subtitle(const PlanReport& r) {
  const placement::Placement& p = r.placement;
  const auto homes = std::count_if(p.layers.begin(), p.layers.end(),
                                   [](const LayerPlacement& l) { return l.home_hot; });
  return Format(
      "%.2f tokens/s, load share %.0f%%, limited by %s; %d of %zu layers at home hot, "
      "head %s",
      p.tokens_per_s(), 100 * p.load_share, LimitName(WhatLimits(p, r.what_ifs)),
      static_cast<int>(homes), p.layers.size(), p.head_hot ? "hot" : "cold");
}

}  // namespace

std::string PlanSvg(const PlanReport& r) {
  const std::size_t layers = r.placement.layers.size();
  const double column = kWidth / static_cast<double>(layers);
  const double map_end = kTop + 4 * kRow + 12, times = map_end + kGap;
  std::string out = Format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\">\n<style>text{font:12px "
      "system-ui,sans-serif;fill:#24292f}</style>\n<rect width=\"100%%\" height=\"100%%\" "
      "fill=\"#ffffff\"/>\n",
      kLeft + kWidth + 30, times + kTimes + 60);
  out += Format("<text x=\"%.1f\" y=\"26\" style=\"font-size:15px;font-weight:600\">", kLeft) +
         charts::EscapeMarkup("Where the neurons of each layer lie: " + r.problem.machine.name) +
         "</text>\n";
  out += Text(kLeft, 48, "start", Subtitle(r));
  out += Text(kLeft, 70, "start",
              "Share of a layer's neurons by tier (white 0 to dark 100%); load: of its active "
              "neurons, computed hot");
  out += HeatMap(r.placement, column) + LayerTicks(layers, column, map_end + 18);
  out += Text(kLeft, times - 8, "start", "Milliseconds of a token, by layer");
  out += Times(r.placement, column, times) + LayerTicks(layers, column, times + kTimes + 18);
  return out + "</svg>\n";
}

}  // namespace thermocline::tools
