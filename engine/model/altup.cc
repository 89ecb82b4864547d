// Defaults and checks of AltUp that both formats share.
#include "engine/model/altup.h"

#include <algorithm>
#include <cmath>

namespace thermocline::model {
namespace {

// The default activation sparsity if a file gives none: in the first ten layers the lowest 95% of
// the gates are cut, so about a twentieth of the neurons stay active. Models of at most ten layers
// have no cut. Source: transformers' Gemma3nTextConfig.
constexpr int kCutLayers = 10;
constexpr double kCutShare = 0.95;

}  // namespace

Status CheckAltUpStreams(const char* name, int streams) {
  if (streams >= 2) return OkStatus();
  return base::InvalidArgument(name, " is ", streams, "; a model of this family has two at least");
}

double GateCutOfShare(double share) {
  if (share <= 0) return 0;
  double low = -10, high = 10;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < share ? low : high) = middle;
  }
  return (low + high) / 2;
}

std::vector<double> DefaultGateCuts(int layers) {
  std::vector<double> cuts(std::clamp(layers, 0, kAltUpLayersMax));
  for (int l = 0; layers > kCutLayers && l < kCutLayers; ++l) cuts[l] = GateCutOfShare(kCutShare);
  return cuts;
}

}  // namespace thermocline::model
