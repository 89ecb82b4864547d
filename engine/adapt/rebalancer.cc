#include "engine/adapt/rebalancer.h"

#include <algorithm>
#include <cmath>

#include "engine/base/log.h"

namespace thermocline::adapt {
namespace {

constexpr float kWeightMax = 1e6F;  // then all are scaled down

}  // namespace

bool CanRebalance(const load::LoadedModel& model, exec::Transformer& transformer) {
  const char* reason = transformer.hybrid() == nullptr   ? "all neurons are on one side"
                       : model.flash != nullptr          ? "neurons come from flash"
                       : model.hot_predictors == nullptr ? "the hot side is a device"
                                                         : nullptr;
  if (reason != nullptr) base::LogWarning("the hot tier is not rebalanced: ", reason);
  return reason == nullptr;
}

Rebalancer::Rebalancer(load::LoadedModel& model, exec::Transformer& transformer,
                       const RebalanceOptions& options)
    : model_(model),
      transformer_(transformer),
      options_(options),
      uses_(model.weights->layers.size(), std::vector<float>(model.config.intermediate_size)) {
  transformer_.hybrid()->SetOnFound(
      [this](int layer, std::span<const int> hot, std::span<const int> cold) {
        Count(layer, hot);
        Count(layer, cold);
      });
}

Rebalancer::~Rebalancer() { transformer_.hybrid()->SetOnFound({}); }

void Rebalancer::Count(int layer, std::span<const int> ids) {
  std::vector<float>& uses = uses_[layer];
  for (const int id : ids) uses[id] += weight_;
}

void Rebalancer::AfterToken() {
  weight_ *= std::exp2(1.0F / static_cast<float>(options_.half_life));
  if (weight_ > kWeightMax) {
    for (std::vector<float>& layer : uses_) {
      for (float& uses : layer) uses /= weight_;
    }
    weight_ = 1;
  }
  if (++tokens_ % options_.interval != 0) return;
  const int layers = model_.config.num_hidden_layers;
  // A layer without a gain gives its turn to the next.
  for (int tries = 0; tries < layers; ++tries) {
    layer_ = (layer_ + 1) % layers;
    if (Round(layer_, options_.swaps) > 0) return;
  }
}

void Rebalancer::Idle() {
  for (int layer = 0; layer < model_.config.num_hidden_layers; ++layer)
    Round(layer, options_.swaps);
}

int Rebalancer::Round(int layer, int most) {
  const std::size_t l = layer;
  const std::vector<float>& uses = uses_[l];
  const auto fewer = [&](int a, int b) { return uses[a] < uses[b]; };
  int swaps = 0;
  for (; swaps < most; ++swaps) {
    const std::vector<int>&hot = model_.split->hot()[l], &cold = model_.split->cold()[l];
    if (hot.empty() || cold.empty()) return 0;
    const int out = *std::min_element(hot.begin(), hot.end(), fewer),
              in = *std::max_element(cold.begin(), cold.end(), fewer);
    const float least = uses[out], greatest = uses[in];
    if (greatest < options_.advantage * least || greatest - least < options_.uses_min * weight_)
      break;
    const ffn::NeuronSplit::Places places = model_.split->Swap(layer, out, in);
    predictor::LayerPredictors &from = model_.hot_predictors->layers[l],
                               &to = model_.predictors->layers[l];
    predictor::CopyRow(from, places.hot_from, hot_row_);
    predictor::CopyRow(to, places.cold_from, cold_row_);
    predictor::ReplaceRow(from, places.hot_from, places.hot_to, cold_row_);
    predictor::ReplaceRow(to, places.cold_from, places.cold_to, hot_row_);
  }
  swaps_ += swaps;
  return swaps;
}

}  // namespace thermocline::adapt
