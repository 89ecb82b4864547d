// The neurons that a text activates, for the subcommands that order neurons or replay caches.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/ffn/ffn_tap.h"
#include "engine/model/model_config.h"
#include "engine/offline/neuron_order.h"
#include "engine/store/trace.h"

namespace thermocline::tools {

// One per layer, over the same tokens.
using ActiveLayers = std::vector<offline::ActiveColumns>;  // [L]

// Records tokens' active neurons as bits, up to `tokens` tokens.
class ActiveTap final : public ffn::FfnTap {
 public:
  ActiveTap(const model::ModelConfig& config, int tokens);
  void OnLayer(const ffn::FfnSample& sample) override;
  ActiveLayers Take() { return std::move(layers_); }

 private:
  ActiveLayers layers_;
  std::vector<int> seen_;  // [L] tokens
};

// Writes a trace. Prefill delivers layer by layer for many tokens, but a trace is written token by
// token.
class TraceTap final : public ffn::FfnTap {
 public:
  TraceTap(const model::ModelConfig& config, store::TraceWriter& writer);
  void OnLayer(const ffn::FfnSample& sample) override;
  void OnExperts(int layer, std::span<const ffn::ChosenExpert> chosen, int tokens) override;

 private:
  // Called when the layer's sets are complete; after the last layer they are written.
  void EndLayer(int layer, std::size_t tokens);
  std::vector<int>& Empty(std::size_t token, int layer, std::size_t tokens);
  const int num_layers_;
  const std::size_t num_neurons_;
  const bool of_experts_;  // dense layers then have empty sets
  store::TraceWriter& writer_;
  std::vector<std::vector<int>> sets_;  // [T, L] of the current tokens
};

// The last `tokens_max` tokens of a trace.
ActiveLayers ActiveOfTrace(const store::Trace& trace, int tokens_max);

}  // namespace thermocline::tools
