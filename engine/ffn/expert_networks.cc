#include "engine/ffn/expert_networks.h"

#include <algorithm>

#include "engine/base/index.h"
#include "engine/nn/offset.h"

namespace thermocline::ffn {
namespace {

// The sizes of one network.
FfnSizes SizesOfOne(const FfnSizes& sizes, const model::ModelConfig& config) {
  return {.config = config,
          .tokens_max = sizes.tokens_max,
          .threads = sizes.threads,
          .sign = sizes.sign};
}

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

NeuronExperts::NeuronExperts(const ExpertNetworks& networks, const FfnContext& context,
                             int tokens_max)
    : context_(context),
      experts_(context.config.experts.num_experts),
      ffn_({.config = networks.config,
            .weights = networks.weights,
            .predictors = &networks.predictors,
            .ops = context.ops,
            .pool = context.pool,
            .multiplier = context.multiplier,
            .tokens_max = tokens_max}),
      residual_(base::Area(tokens_max, context.config.hidden_size)),
      y_(residual_.size()) {
  tokens_.Resize(tokens_max, context.config.hidden_size);
}

std::size_t NeuronExperts::Bytes(const FfnSizes& sizes) {
  const int d = sizes.config.hidden_size;
  const model::ModelConfig config = ExpertNetworks::ConfigOf(sizes.config);
  return SparseFfn::Bytes(SizesOfOne(sizes, config)) +
         nn::ActivationBuffer::Bytes(sizes.tokens_max, d) +
         2 * base::Area(sizes.tokens_max, d) * sizeof(float);
}

FfnInput NeuronExperts::Gather(const ExpertUnit& unit, const FfnInput& input) {
  const int d = context_.config.hidden_size;
  if (input.tokens == 1) return input;
  for (int i = 0; i < unit.tokens; ++i) {
    const std::ptrdiff_t from = nn::Offset(unit.ids[i], d), to = nn::Offset(i, d);
    std::copy_n(input.hidden.x.data() + from, d, tokens_.x.data() + to);
    if (input.residual != nullptr) std::copy_n(input.residual + from, d, residual_.data() + to);
    nn::QuantizeToken(context_.ops, tokens_, i);
  }
  return {tokens_, residual_.data(), unit.tokens};
}

void NeuronExperts::Add(int layer, const ExpertUnit& unit, const FfnInput& input,
                        const FfnPolicy& policy, bool lossless, float* out) {
  const int network = layer * experts_ + unit.expert, d = context_.config.hidden_size;
  ffn_.policy(network) = policy;
  CHECK(ffn_.Run(network, Gather(unit, input), lossless, y_.data()).ok());
  counts_ = ffn_.TakeCounters(network);
  counts_.tokens = 0;  // a token's experts are one
  for (int i = 0; i < unit.tokens; ++i) {
    const float* y = y_.data() + nn::Offset(i, d);
    float* to = out + nn::Offset(unit.ids[i], d);
    for (int c = 0; c < d; ++c) to[c] += unit.weight[i] * y[c];
  }
}

}  // namespace thermocline::ffn
