#include "tools/pack/expert_map.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "engine/base/index.h"
#include "engine/base/ratio.h"
#include "engine/base/strings.h"

namespace thermocline::tools {
namespace {

constexpr int kWidth = 1180, kLeft = 60, kTop = 56, kBottom = 44, kHeightMax = 520;

std::string Format(const char* format, auto... values) {
  char text[256];
  std::snprintf(text, sizeof(text), format, values...);
  return text;
}

// White for 0, dark blue for `most`. Equal steps of the square root look about equal.
std::string ColorOf(double share, double most) {
  const double depth = most > 0 ? std::sqrt(share / most) : 0;
  const auto mix = [&](int to) { return static_cast<int>(std::lround(255 + depth * (to - 255))); };
  return Format("#%02x%02x%02x", mix(8), mix(48), mix(107));
}

std::string Text(double x, double y, const char* anchor, const std::string& text, int size = 12) {
  return Format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" style=\"font-size:%dpx\">", x, y,
                anchor, size) +
         text + "</text>\n";
}

std::vector<double> Shares(const offline::ActivationCounter& layer) {
  std::vector<double> shares;
  for (const std::uint32_t count : layer.counts())
    shares.push_back(base::Ratio(count, std::max<std::int64_t>(1, layer.tokens())));
  std::sort(shares.begin(), shares.end(), std::greater<>());
  return shares;
}

}  // namespace

std::string WithExpertMap(const std::string& curves,
                          const std::vector<offline::ActivationCounter>& layers) {
  const int rows = base::IntSize(layers), columns = base::IntSize(layers.front().counts());
  const double cell_h = std::clamp(base::Ratio(kHeightMax, rows), 4.0, 24.0);
  const double cell_w = base::Ratio(kWidth - kLeft - 20, columns);
  const double height = kTop + rows * cell_h + kBottom;
  double most = 0;
  for (const auto& layer : layers) most = std::max(most, Shares(layer).front());
  std::string map = Text(kLeft, 24, "start", "Experts by use, of each layer", 16) +
                    Text(kLeft, 44, "start",
                         Format("white: never chosen; dark: by %.0f%% of the tokens", 100 * most));
  for (int l = 0; l < rows; ++l) {
    const double y = kTop + l * cell_h;
    const int every = std::max(1, rows / 16);
    if (l % every == 0) map += Text(kLeft - 8, y + cell_h / 2 + 4, "end", StrCat(l));
    const std::vector<double> shares = Shares(layers[l]);
    for (int e = 0; e < columns; ++e) {
      map += Format("<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"",
                    kLeft + e * cell_w, y, cell_w, cell_h) +
             ColorOf(shares[e], most) + "\"/>\n";
    }
  }
  map += Format(
      "<rect x=\"%d\" y=\"%d\" width=\"%.2f\" height=\"%.2f\" fill=\"none\" "
      "stroke=\"#888\"/>\n",
      kLeft, kTop, columns * cell_w, rows * cell_h);
  for (int i = 0; i <= 4; ++i)
    map += Text(kLeft + columns * cell_w * i / 4, kTop + rows * cell_h + 16,
                i == 0   ? "start"
                : i == 4 ? "end"
                         : "middle",
                StrCat(columns * i / 4));
  map += Text(kLeft + columns * cell_w / 2, kTop + rows * cell_h + 34, "middle",
              "experts, the most used first");
  // The curves are scaled to the map's width and placed below it.
  const std::size_t box = curves.find("viewBox=\"0 0 ");
  double w = kWidth, h = 480;
  if (box != std::string::npos) std::sscanf(curves.c_str() + box, "viewBox=\"0 0 %lf %lf", &w, &h);
  const double scaled = h * kWidth / w;
  std::string below = curves.substr(curves.find("<svg"));
  const std::size_t own = below.find(" width=");  // its size as a separate picture
  below.erase(own, below.find('>') - own);
  below.insert(4,
               Format(" x=\"0\" y=\"%.1f\" width=\"%d\" height=\"%.1f\"", height, kWidth, scaled));
  return Format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" "
             "font-family=\"sans-serif\">\n<rect width=\"100%%\" height=\"100%%\" "
             "fill=\"white\"/>\n",
             kWidth, height + scaled) +
         map + below + "</svg>\n";
}

}  // namespace thermocline::tools
