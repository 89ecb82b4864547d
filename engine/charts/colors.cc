#include <array>
#include <cstdio>

#include "engine/charts/chart.h"

namespace thermocline::charts {

std::vector<std::string> Colors(int count) {
  static constexpr std::array kFew = {"#0969da", "#cf222e", "#1a7f37",
                                      "#bf8700", "#8250df", "#d4a72c"};
  struct Rgb {
    double r, g, b;
  };
  // Source: five colours close to matplotlib's viridis.
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

}  // namespace thermocline::charts
