#include "engine/load/baseline_placement.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace thermocline::load {
namespace {

constexpr std::string_view kRandom = "random", kNaive = "naive";

void PlaceAtRandom(int neurons, ffn::NeuronIds& hot) {
  std::mt19937 draw(1);
  for (std::vector<int>& ids : hot) {
    std::vector<int> all(neurons);
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), draw);
    std::copy_n(all.begin(), ids.size(), ids.begin());
    std::sort(ids.begin(), ids.end());
  }
}

void PlaceFirstLayers(int neurons, ffn::NeuronIds& hot) {
  std::size_t left = 0;
  for (const std::vector<int>& ids : hot) left += ids.size();
  for (std::vector<int>& ids : hot) {
    ids.resize(std::min<std::size_t>(neurons, left));
    std::iota(ids.begin(), ids.end(), 0);
    left -= ids.size();
  }
}

}  // namespace

bool IsBaseline(std::string_view placement) { return placement == kRandom || placement == kNaive; }

void PlaceAsBaseline(std::string_view placement, int neurons, ffn::NeuronIds& hot) {
  if (placement == kRandom) PlaceAtRandom(neurons, hot);
  if (placement == kNaive) PlaceFirstLayers(neurons, hot);
}

}  // namespace thermocline::load
