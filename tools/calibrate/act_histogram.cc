#include "tools/calibrate/act_histogram.h"

#include <algorithm>
#include <cmath>

#include "engine/base/index.h"
#include "engine/predictor/down_norms.h"

namespace thermocline::tools {
namespace {

constexpr int kPerOctave = 9, kOctaves = 40, kBins = kPerOctave * kOctaves;
constexpr double kLeastExponent = -30;  // a power of 2; smaller activations count as zero

}  // namespace

ActHistogram::ActHistogram(const load::LoadedModel& model)
    : model_(model),
      bins_(model.weights->layers.size(), std::vector<Bin>(kBins)),
      act_(model.config.intermediate_size) {
  for (const model::LayerWeights& layer : model.weights->layers)
    norms_.push_back(predictor::DownNorms(layer, *model.pool));
}

int ActHistogram::BinOf(float act) {
  if (act == 0) return 0;
  const double exponent = std::log2(std::fabs(double{act})) - kLeastExponent;
  return std::clamp(static_cast<int>(std::floor(exponent * kPerOctave)), 0, kBins - 1);
}

float ActHistogram::LeastOf(int bin) {
  return bin == 0 ? 0.0F
                  : static_cast<float>(
                        std::exp2(static_cast<double>(bin) / kPerOctave + kLeastExponent));
}

void ActHistogram::OnLayer(const ffn::FfnSample& s) {
  const std::size_t layer = s.layer;
  const int f = model_.config.intermediate_size;
  for (int t = 0; t < s.tokens; ++t) {
    const std::ptrdiff_t at = base::Area(t, f);
    model_.ops->gated({.gate = s.gate + at,
                       .n = f,
                       .activation = ffn::GateOf(model_.config.hidden_act),
                       .threshold = static_cast<float>(model_.config.fatrelu_threshold),
                       .out = act_.data()});
    for (int i = 0; i < f; ++i) {
      const std::size_t neuron = i;
      Bin& bin = bins_[layer][BinOf(act_[neuron])];
      bin.mass += std::fabs(double{s.neurons[at + i]}) * norms_[layer][neuron];
      bin.neurons += 1;
    }
  }
}

float ActHistogram::ThresholdFor(int layer, double kept_mass) const {
  const std::vector<Bin>& bins = bins_[layer];
  double total = 0, below = 0;
  for (const Bin& bin : bins) total += bin.mass;
  for (int b = 0; b < kBins; ++b) {
    below += bins[b].mass;
    if (below > (1 - kept_mass) * total) return LeastOf(b);
  }
  return 0;
}

ActHistogram::Kept ActHistogram::KeptAt(int layer, float threshold) const {
  const std::vector<Bin>& bins = bins_[layer];
  Bin total, kept;
  for (int b = 0; b < kBins; ++b) {
    const Bin& bin = bins[b];
    total.mass += bin.mass;
    total.neurons += bin.neurons;
    if (LeastOf(b) < threshold) continue;
    kept.mass += bin.mass;
    kept.neurons += bin.neurons;
  }
  return {total.mass > 0 ? kept.mass / total.mass : 1,
          total.neurons > 0 ? kept.neurons / total.neurons : 1};
}

}  // namespace thermocline::tools
