#include "engine/ffn/expert_networks.h"

#include <algorithm>

#include "engine/base/index.h"
#include "engine/nn/offset.h"

namespace thermocline::ffn {
namespace {

const float* BiasOf(const model::Linear& all, int expert, int rows) {
  return all.bias == nullptr ? nullptr : all.bias + nn::Offset(expert, rows);
}

}  // namespace

model::ModelConfig ExpertNetworks::ConfigOf(const model::ModelConfig& mixture) {
  model::ModelConfig config = mixture;
  config.num_hidden_layers = mixture.num_hidden_layers * mixture.experts.num_experts;
  config.intermediate_size = mixture.experts.intermediate_size;
  config.experts = {};
  return config;
}

ExpertNetworks::ExpertNetworks(const model::ModelConfig& mixture, const model::Weights& all)
    : config(ConfigOf(mixture)) {
  const int experts = mixture.experts.num_experts, f = config.intermediate_size,
            d = mixture.hidden_size;
  weights.layers.resize(base::Area(mixture.num_hidden_layers, experts));
  for (int l = 0; l < mixture.num_hidden_layers; ++l) {
    const model::ExpertWeights& w = all.layers[l].experts;
    for (int e = 0; w.any() && e < experts; ++e) {
      model::LayerWeights& one = weights.layers[nn::Offset(l, experts) + e];
      const auto part = [&](const model::Linear& of, model::Layout layout) {
        return model::NeuronMatrix{
            .linear = {model::ExpertWeights::Of(of.weight, e, f), BiasOf(of, e, f)},
            .layout = layout};
      };
      if (mixture.architecture->gated) one.gate = part(w.gate, w.gate_layout);
      one.up = part(w.up, w.up_layout);
      one.down_rows = w.down_rows;
      one.down_rows.rows = f;
      one.down_rows.data = w.down_rows.data + e * one.down_rows.bytes();
      one.down.bias = BiasOf(w.down, e, d);
    }
  }
}

}  // namespace thermocline::ffn
