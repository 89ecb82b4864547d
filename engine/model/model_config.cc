#include "engine/model/model_config.h"

#include <algorithm>
#include <cmath>

#include "engine/base/index.h"
#include "engine/base/strings.h"

namespace thermocline::model {
namespace {

// Returns the parameters of attention in a layer, without biases and norms.
std::int64_t AttentionParameters(const ModelConfig& c, int layer) {
  const std::int64_t d = c.hidden_size, heads = c.num_attention_heads;
  const HeadShape shape = c.HeadsOf(layer);
  const int parts = !c.OwnsKv(layer) ? 0 : c.KeysAreValues(layer) ? 1 : 2;
  if (!c.latent.any()) return d * (2 * shape.q() + parts * shape.kv());
  const LatentConfig& l = c.latent;
  const std::int64_t q = heads * (l.qk_nope_head_dim + l.qk_rope_head_dim), rank = l.q_lora_rank;
  return (rank > 0 ? rank * (d + q) : d * q) + d * (l.kv_lora_rank + l.qk_rope_head_dim) +
         heads * l.kv_lora_rank * (l.qk_nope_head_dim + l.v_head_dim) + d * heads * l.v_head_dim;
}

// Returns the same for a layer's mixer, including a recurrent one's convolution and heads.
std::int64_t MixerParameters(const ModelConfig& c, int layer) {
  const RecurrentConfig& r = c.recurrent;
  const std::int64_t d = c.hidden_size, inner = r.inner(), channels = r.channels(c.hidden_size);
  switch (r.of(layer)) {
    case Mixer::kAttention:
      return AttentionParameters(c, layer) +
             (c.architecture->output_gate != OutputGate::kNone ? d * c.HeadsOf(layer).q() : 0);
    case Mixer::kShortConv:
      return 4 * d * d + r.taps * d;
    case Mixer::kDeltaNet:
      return d * (channels + 2 * inner + 2 * r.heads) + r.taps * channels + 2 * r.heads;
    case Mixer::kMamba2:
      return d * (channels + 2 * inner + r.heads) + r.taps * channels + 3 * r.heads + inner;
    case Mixer::kNone:
      break;
  }
  return 0;
}

std::int64_t ExpertParameters(const ModelConfig& c) {
  const ExpertConfig& e = c.experts;
  const std::int64_t d = c.hidden_size;
  const std::int64_t neurons =
      std::int64_t{e.num_experts} * e.intermediate_size + e.shared_intermediate_size;
  return (c.architecture->gated ? 3 : 2) * d * neurons + d * e.num_experts;
}

}  // namespace

std::int64_t ModelConfig::num_parameters() const {
  const std::int64_t d = hidden_size;
  const std::int64_t neuron = (architecture->gated ? 3 : 2) * d;
  const std::int64_t positions = learned_positions() ? d * max_position_embeddings : 0;
  std::int64_t sum = d * vocab_size * (tie_word_embeddings ? 1 : 2) + d + positions;
  if (altup.any() || altup.embedding_dim > 0) {
    const std::int64_t own = std::int64_t{num_hidden_layers} * altup.embedding_dim;
    sum += own * (vocab_size + d) + 2 * std::max(0, altup.streams - 1) * d * d +
           std::int64_t{2} * num_hidden_layers * d * (altup.laurel_rank + altup.embedding_dim);
  }
  for (int layer = 0; layer < num_hidden_layers; ++layer) {
    sum += MixerParameters(*this, layer) + 2 * d;
    if (!recurrent.has_network(layer)) continue;
    const bool mixed = experts.InLayer(layer);
    if (mixed) sum += ExpertParameters(*this);
    if (!mixed || architecture->beside_experts) sum += neuron * NetworkSizeOf(layer);
  }
  return sum;
}

bool ModelConfig::IsOfPrediction(std::string_view tensor, std::string_view prefix) const {
  if (prediction_layers == 0 || !tensor.starts_with(prefix)) return false;
  const std::string_view rest = tensor.substr(prefix.size());
  return base::ParseNumber<int>(rest.substr(0, rest.find('.'))).value_or(-1) >= num_hidden_layers;
}

HeadShape ModelConfig::HeadsOf(int layer) const {
  const bool in_window = WindowOf(layer) > 0, window = window_head_dim > 0 && in_window;
  return {window_query_heads > 0 && in_window ? window_query_heads : num_attention_heads,
          window ? window_kv_heads : num_key_value_heads, window ? window_head_dim : head_dim};
}

HeadShape ModelConfig::LargestHeads() const {
  return {std::max(num_attention_heads, window_query_heads),
          std::max(num_key_value_heads, window_kv_heads), std::max(head_dim, window_head_dim)};
}

int ModelConfig::WindowOf(int layer) const {
  if (sliding_window == 0 || layer < max_window_layers) return 0;
  const int period = window_period > 0 ? window_period : architecture->window_period;
  const int at = layer - max_window_layers;
  const bool first = at % period == 0, last = (at + 1) % period == 0;
  switch (architecture->window_place) {
    case WindowPlace::kFirst:
      return first ? sliding_window : 0;
    case WindowPlace::kButFirst:
      return first ? 0 : sliding_window;
    case WindowPlace::kButLast:
      return last ? 0 : sliding_window;
  }
  return 0;
}

Status SetWindowedLayers(const std::vector<bool>& windowed, ModelConfig& c) {
  const Architecture& a = *c.architecture;
  const bool none = std::find(windowed.begin(), windowed.end(), true) == windowed.end();
  if (none && !a.unrotated) c.sliding_window = 0;
  if (a.window_place == WindowPlace::kButLast && c.sliding_window > 0) {
    const auto lead =
        a.full_lead ? std::find(windowed.begin(), windowed.end(), true) : windowed.begin();
    c.max_window_layers = static_cast<int>(lead - windowed.begin());
    c.window_period = static_cast<int>(std::find(lead, windowed.end(), false) - lead) + 1;
  }
  for (int layer = 0; layer < base::IntSize(windowed); ++layer) {
    if (windowed[layer] != (c.WindowOf(layer) > 0))
      return base::Unimplemented("layer ", layer, windowed[layer] ? " has" : " lacks",
                                 " a window of ", c.sliding_window,
                                 " tokens, which the architecture '", a.name, "' does not support");
  }
  return OkStatus();
}

Status SetQueryHeads(const std::vector<int>& heads, ModelConfig& c) {
  int whole = 0, in_window = 0;
  for (int layer = 0; layer < base::IntSize(heads); ++layer) {
    int& of = c.WindowOf(layer) > 0 ? in_window : whole;
    if (of != 0 && of != heads[layer])
      return base::Unimplemented("layers ", c.WindowOf(layer) > 0 ? "with" : "without",
                                 " a window have ", of, " and ", heads[layer],
                                 " query heads, which is not supported");
    of = heads[layer];
  }
  c.num_attention_heads = whole > 0 ? whole : in_window;
  c.window_query_heads = in_window;
  return OkStatus();
}

bool ModelConfig::HasZeros() const { return HasTrueZeros(hidden_act) || HasCuts(); }

bool ModelConfig::HasCuts() const {
  return std::any_of(altup.cuts.begin(), altup.cuts.end(), [](double cut) { return cut > 0; });
}

int ModelConfig::KvLayerOf(int layer) const {
  if (OwnsKv(layer)) return layer;
  // Returns the last layer of the same kind with its own cache; ValidateConfig ensures that one
  // exists.
  int from = NumKvLayers() - 1;
  while (from > 0 && (WindowOf(from) > 0) != (WindowOf(layer) > 0)) --from;
  return from;
}

int ModelConfig::StoringLayers() const {
  int layers = 0;
  for (int layer = 0; layer < num_hidden_layers; ++layer) {
    const Mixer mixer = recurrent.of(layer);
    const bool stores = mixer == Mixer::kAttention ? OwnsKv(layer) : mixer != Mixer::kNone;
    if (stores) layers = layer + 1;
  }
  return layers;
}

bool ModelConfig::Rotates(int layer) const {
  if (unrotated) return false;
  const int never = architecture->unrotated_period;
  if (!rotary() || (never > 0 && (layer + 1) % never == 0)) return false;
  if (architecture->full_lead && layer < experts.first_layer) return true;
  return !(architecture->unrotated && sliding_window > 0 && WindowOf(layer) == 0);
}

bool ModelConfig::DeviceComputesLayers() const {
  const Architecture& a = *architecture;
  const bool plain_norms =
      a.norm_place == NormPlace::kBefore && !a.wide_norm && !a.norm_after_rope && !a.sub_norms;
  const bool same_layers = a.window_place == WindowPlace::kFirst && a.window_period == 1 &&
                           a.unrotated_period == 0 && !HasWindowRope() && !plain_head_norm;
  const bool plain_scores = attention_cap == 0 && logit_cap == 0 && temperature_beta == 0;
  return !latent.any() && !altup.any() && !recurrent.any() && a.output_gate == OutputGate::kNone &&
         hidden_act != Activation::kXielu && !a.embedding_norm && plain_norms && same_layers &&
         plain_scores && !a.scales && !a.sinks;
}

Status RequireDense(const ModelConfig& config, std::string_view what) {
  if (config.latent.any())
    return base::FailedPrecondition(what, ": this model's attention is latent");
  if (!config.experts.any()) return OkStatus();
  return base::FailedPrecondition(
      what, ": works with the neurons of dense networks, and this model is a mixture of ",
      config.experts.num_experts, " experts");
}

Status RequireAttention(const ModelConfig& config, std::string_view what) {
  if (!config.recurrent.any()) return OkStatus();
  return base::FailedPrecondition(what, ": ", config.recurrent.layers(),
                                  " layers of this model are recurrent, and a draft's state cannot "
                                  "go back by single tokens; use drafts of the text (ngram) or of "
                                  "a model whose layers all have attention");
}

Status RequireNetworks(const ModelConfig& config, std::string_view what) {
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (!config.recurrent.has_network(layer))
      return base::FailedPrecondition(what, ": works with the neurons of every layer, and layer ",
                                      layer, " of this model has none");
    if (config.NetworkSizeOf(layer) != config.intermediate_size)
      return base::FailedPrecondition(
          what, ": works with as many neurons in every layer, and layer ", layer,
          " of this model has ", config.NetworkSizeOf(layer), " of ", config.intermediate_size);
  }
  return OkStatus();
}

void SetDenseSize(ModelConfig& c) {
  if (c.architecture->beside_experts) return;
  for (int layer = 0; layer < std::min(c.num_hidden_layers, kLayersMax); ++layer)
    if (!c.experts.InLayer(layer)) return;
  c.intermediate_size = c.experts.intermediate_size;
}

}  // namespace thermocline::model
