#include "tools/pack/active_source.h"

#include <algorithm>

namespace thermocline::tools {

ActiveTap::ActiveTap(const model::ModelConfig& config, int tokens)
    : layers_(config.num_hidden_layers, offline::ActiveColumns(config.intermediate_size, tokens)),
      seen_(layers_.size()) {}

void ActiveTap::OnLayer(const ffn::FfnSample& s) {
  offline::ActiveColumns& active = layers_[s.layer];
  int& seen = seen_[s.layer];
  const float* neurons = s.neurons;
  for (int t = 0; t < s.tokens && seen < active.tokens(); ++t, ++seen) {
    for (int i = 0; i < active.neurons(); ++i) {
      if (*neurons++ != 0) active.Set(i, seen);
    }
  }
}

TraceTap::TraceTap(const model::ModelConfig& config, store::TraceWriter& writer)
    : num_layers_(config.num_hidden_layers),
      num_neurons_(config.intermediate_size),
      of_experts_(config.experts.any()),
      writer_(writer) {}

void TraceTap::OnLayer(const ffn::FfnSample& s) {
  const std::size_t tokens = s.tokens;
  for (std::size_t t = 0; t < tokens; ++t) {
    std::vector<int>& set = Empty(t, s.layer, tokens);
    for (std::size_t i = 0; i < num_neurons_ && !of_experts_; ++i) {
      if (s.neurons[t * num_neurons_ + i] != 0) set.push_back(static_cast<int>(i));
    }
  }
  EndLayer(s.layer, tokens);
}

void TraceTap::OnExperts(int layer, std::span<const ffn::ChosenExpert> chosen, int tokens) {
  const std::size_t count = tokens, k = chosen.size() / count;
  for (std::size_t t = 0; t < count; ++t) {
    std::vector<int>& set = Empty(t, layer, count);
    for (const ffn::ChosenExpert& each : chosen.subspan(t * k, k)) set.push_back(each.expert);
  }
  EndLayer(layer, count);
}

std::vector<int>& TraceTap::Empty(std::size_t token, int layer, std::size_t tokens) {
  const std::size_t layers = num_layers_;
  if (sets_.size() < tokens * layers) sets_.resize(tokens * layers);
  std::vector<int>& set = sets_[token * layers + layer];
  set.clear();
  return set;
}

void TraceTap::EndLayer(int layer, std::size_t tokens) {
  if (layer + 1 < num_layers_) return;
  for (std::size_t i = 0; i < tokens * num_layers_; ++i) writer_.Add(sets_[i]);
}

ActiveLayers ActiveOfTrace(const store::Trace& trace, int tokens_max) {
  const auto tokens = static_cast<int>(std::min<std::int64_t>(trace.tokens, tokens_max));
  ActiveLayers layers;
  for (int layer = 0; layer < trace.num_hidden_layers; ++layer) {
    offline::ActiveColumns& active = layers.emplace_back(trace.intermediate_size, tokens);
    for (int t = 0; t < tokens; ++t) {
      for (const std::uint32_t neuron : trace.Set(trace.tokens - tokens + t, layer))
        active.Set(neuron, t);
    }
  }
  return layers;
}

}  // namespace thermocline::tools
