// The shape of a model. Field names are those of Hugging Face's config.json.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/model/altup.h"
#include "engine/model/architecture.h"
#include "engine/model/recurrent_config.h"

namespace thermocline::model {

// The change of rotary frequencies that extends the context beyond the training length. Two more
// kinds need no name: NTK-aware scaling is another theta, Llama 3.1's bands are divisors. kLong:
// divisors for contexts up to the original one, and others for longer ones.
// Source: Ding et al. 2024 (LongRoPE).
enum class RopeScaling { kNone, kLinear, kYarn, kLong };

struct RopeConfig {
  double theta = 10000.0;
  int dim = 0;  // rotated dimensions of a head
  RopeScaling scaling = RopeScaling::kNone;
  bool truncate = true;  // yarn: the dimensions between which it blends are integers
  double factor = 1.0;
  int original_max_position = 0;  // tokens; yarn and long
  double beta_fast = 32.0;        // yarn: rotations over the original context
  double beta_slow = 1.0;         // yarn
  // Factor of cos and sin; 0: yarn 0.1 ln(factor) + 1, long sqrt(1 + ln(factor) / ln(original)).
  double attention_factor = 0;
  std::vector<float> divisors;       // [dim / 2] of the frequencies, or empty
  std::vector<float> long_divisors;  // [dim / 2] for longer contexts, or empty
};

// Attention whose K and V come from one vector per token (model/latent_attention.h).
struct LatentConfig {
  int kv_lora_rank = 0;      // c, size of that vector; 0: attention is not latent
  int q_lora_rank = 0;       // size of the vector for queries; 0: they use the input
  int qk_nope_head_dim = 0;  // n, dimensions of a query's head without rotation
  int qk_rope_head_dim = 0;  // r, rotated dimensions
  int v_head_dim = 0;        // v, dimensions of a value's head
  // With yarn, scores are multiplied by (yarn_log_multiplier ln(factor) + 1)^2.
  double yarn_log_multiplier = 0;

  bool any() const { return kv_lora_rank > 0; }
};

inline constexpr int kLayersMax = 1024;
// ModelConfig::pooling_type
inline constexpr int kPoolingMean = 1, kPoolingFirst = 2, kPoolingRank = 4;
// Readers refuse larger numbers, so that sums of a few overflow in no derived size.
inline constexpr int kConfigNumberMax = 1 << 28;

// The heads of attention.
struct HeadShape {
  int heads = 0;     // H
  int kv_heads = 0;  // K
  int dim = 0;       // Dh

  int group() const { return heads / kv_heads; }  // query heads of a kv head
  int q() const { return heads * dim; }
  int kv() const { return kv_heads * dim; }
};

// The parameters of the activation xielu in a layer, as files store them: alpha_p and alpha_n
// before softplus (kernels/elementwise.h). Source: Huang and Schlag 2024 (xIELU).
struct XieluConfig {
  double alpha_p = 0, alpha_n = 0, beta = 0, eps = 0;
};

struct ModelConfig {
  const Architecture* architecture = nullptr;
  int hidden_size = 0;             // D
  int intermediate_size = 0;       // F; of mixtures: of dense layers, else an expert's
  std::vector<int> network_sizes;  // [L] where layers differ, F is the largest; empty: all F
  int num_hidden_layers = 0;       // L
  int num_attention_heads = 0;     // H
  int num_key_value_heads = 0;     // K
  int head_dim = 0;                // Dh
  // The heads of layers with a window; 0: the same as the other layers'.
  int window_kv_heads = 0, window_head_dim = 0, window_query_heads = 0;
  bool keys_as_values =
      false;           // layers without a window have no V: it is K before norm and rotation
  int vocab_size = 0;  // V
  int max_position_embeddings = 0;  // tokens
  int sliding_window = 0;           // tokens that a token sees, itself included; 0 = all
  int max_window_layers = 0;        // the first layer with the window
  int window_period = 0;            // of layers, for WindowPlace; 0: the family's default
  double norm_eps = 1e-5;
  RopeConfig rope;
  RopeConfig window_rope;  // of layers with a window; dim 0: as the others
  LatentConfig latent;     // then H, K and Dh are those of the absorbed form
  AltUpConfig altup;
  RecurrentConfig recurrent;
  bool unrotated = false;  // no layer is rotated, whatever the family's default is
  ExpertConfig experts;
  // Factors of the embedding, a block's output, attention scores (0: 1 / sqrt(Dh)) and logits.
  double embedding_scale = 1, residual_scale = 1, attention_scale = 0, logit_scale = 1;
  // Attention scores, and logits, become cap tanh(x / cap); 0: no cap. Source: Gemma 2.
  double attention_cap = 0, logit_cap = 0;
  bool plain_head_norm = false;  // heads are normed after the rotation, without weights
  // Queries at position p are multiplied by 1 + beta ln(1 + floor(p / period)). Source: Llama 4.
  double temperature_beta = 0;
  int temperature_period = 0;  // tokens
  Activation hidden_act = Activation::kSilu;
  double fatrelu_threshold = 0;
  std::vector<XieluConfig> xielu;  // [L] if hidden_act is kXielu
  // Low-rank predictors (powerinfer.h) predict a neuron to be active from this value on.
  std::optional<float> sparse_threshold;
  int prediction_layers = 0;  // further blocks of the file for drafting: not used
  bool tie_word_embeddings = false;
  int pooling_type = -1;  // GGUF's number: 0 none, 1 mean, 2 first, 3 last, 4 rank; -1 = not given
  bool ranks_by_mean = false;  // of those that rank: of the mean of all states, not of the first
  int separator_token = -1;    // of encoders: it ends a text's first segment

  std::int64_t num_parameters() const;
  // Returns the factor of a query's product with a key.
  float ScoreScale() const {
    return attention_scale > 0 ? static_cast<float>(attention_scale)
                               : 1.0F / std::sqrt(static_cast<float>(head_dim));
  }
  // True if the model scores pairs of texts.
  bool ranks() const { return architecture->encoder && pooling_type == kPoolingRank; }
  // The number of units of a layer that are read or skipped as a whole: neurons, or experts.
  int units_per_layer() const { return experts.any() ? experts.num_experts : intermediate_size; }
  // True if a tensor, named `prefix` and a layer's number, belongs to a block after the last layer.
  bool IsOfPrediction(std::string_view tensor, std::string_view prefix) const;
  // Tokens that a token of the layer sees, itself included; 0: all. With chunks, at most so many.
  int WindowOf(int layer) const;
  // The first position that a token at `position` sees in the layer, and the end of these in a text
  // of `length` tokens. The windows of encoders reach to both sides.
  int FirstSeen(int layer, int position) const {
    const int window = WindowOf(layer);
    if (window == 0) return 0;
    if (architecture->encoder) return std::max(0, position - window / 2);
    return architecture->chunked ? position - position % window
                                 : std::max(0, position + 1 - window);
  }
  int EndSeen(int layer, int position, int length) const {
    const int window = WindowOf(layer);
    if (!architecture->encoder) return position + 1;
    return window == 0 ? length : std::min(length, position + window / 2 + 1);
  }
  // The heads of a layer's attention, and the neurons of its dense network.
  HeadShape HeadsOf(int layer) const;
  int NetworkSizeOf(int layer) const {
    return network_sizes.empty() ? intermediate_size : network_sizes[layer];
  }
  // The largest sizes of heads among the layers: buffers have room for them.
  HeadShape LargestHeads() const;
  // True if the layer's V is its K before norm and rotation.
  bool KeysAreValues(int layer) const { return keys_as_values && WindowOf(layer) == 0; }
  // True if most neurons of the layer, or of some layer, are exactly zero for a token.
  bool HasZeros(int layer) const { return HasTrueZeros(hidden_act) || altup.CutOf(layer) > 0; }
  bool HasZeros() const;
  // True if some layer's neurons are zeroed by a cut of its gates (altup.h).
  bool HasCuts() const;
  // NumKvLayers: the number of first layers with their own K and V. KvLayerOf: the layer whose K
  // and V a layer reads. OwnsKv: true if these are the layer's own.
  int NumKvLayers() const { return num_hidden_layers - altup.shared_kv_layers; }
  int KvLayerOf(int layer) const;
  bool OwnsKv(int layer) const {
    return layer < NumKvLayers() && recurrent.of(layer) == Mixer::kAttention;
  }
  // The number of layers up to the last one with K and V, or a state, of its own.
  int StoringLayers() const;
  // Rotates returns true if the layer's queries and keys are rotated; RopeOf returns the rotation.
  bool Rotates(int layer) const;
  const RopeConfig& RopeOf(int layer) const {
    return HasWindowRope() && WindowOf(layer) > 0 ? window_rope : rope;
  }
  bool HasWindowRope() const { return window_rope.dim > 0; }
  bool rotary() const { return !learned_positions() && !by_distance(); }
  bool learned_positions() const { return architecture->position == Position::kLearned; }
  bool by_distance() const { return architecture->position == Position::kDistance; }
  // True if the GPU kernels support all parts of a layer of the family.
  bool DeviceComputesLayers() const;
};

// InvalidArgument names the field, the value and the bound: zero or huge sizes, heads that do not
// divide, odd rotary dimensions. In a valid config, products of two sizes fit 63 bits.
Status ValidateConfig(const ModelConfig& config);

// `windowed`: for each layer, true if it has a window. The layers must match the family's pattern,
// with any period if all but the last of a period have a window; no windows at all are also allowed
// unless they determine the rotated layers. Unimplemented: any other pattern. Requires:
// sliding_window is set.
Status SetWindowedLayers(const std::vector<bool>& windowed, ModelConfig& config);

// Sets the numbers of query heads of layers with and without a window from those of all layers.
// Unimplemented: they differ otherwise. Requires: the windows are set.
Status SetQueryHeads(const std::vector<int>& heads, ModelConfig& config);

// Llama 4's attention temperature where a file does not give it.
inline constexpr double kLlama4TemperatureBeta = 0.1;
inline constexpr int kLlama4TemperaturePeriod = 8192, kLlama4Chunk = 8192;  // tokens
// True if Llama 4's heads are normed; the one with 128 experts has no such norm, and GGUF files do
// not say so. Source: llama.cpp.
inline bool HasLlama4HeadNorm(const ModelConfig& config) {
  return config.experts.num_experts != 128;
}

// FailedPrecondition for mixtures of experts and latent attention, which the named feature does not
// support: it needs neurons of dense networks, and separate heads.
Status RequireDense(const ModelConfig& config, std::string_view what);
// FailedPrecondition for models with recurrent layers, whose states the feature does not support.
Status RequireAttention(const ModelConfig& config, std::string_view what);
// FailedPrecondition if some layers have no feed-forward network, or one of another size, while the
// feature needs the same in every layer.
Status RequireNetworks(const ModelConfig& config, std::string_view what);

// For mixtures without a dense layer: sets F to an expert's size, so that no buffer is sized by a
// number without a tensor.
void SetDenseSize(ModelConfig& config);

// Angles per position, including scaling. Source: Su et al. 2021; YaRN (Peng et al. 2023).
struct RopeFrequencies {
  std::vector<double> frequencies;  // [dim / 2] radians per position
  double magnitude = 1.0;           // factor of cos and sin
};
// `context_length`: maximum tokens of a sequence.
RopeFrequencies ComputeRopeFrequencies(const RopeConfig& rope, int context_length);

// Returns the theta of dynamic NTK scaling at a context of `factor` times the original. It is used
// at every length, so positions keep their angles while the context grows.
double NtkTheta(double theta, int dim, double factor);

// The parameters of Llama 3.1's frequency divisors.
struct Llama3Bands {
  double factor = 8, low_freq_factor = 1, high_freq_factor = 4;
  int original_max_position = 8192;  // tokens
};
std::vector<float> Llama3Divisors(const RopeConfig& rope, const Llama3Bands& bands);

}  // namespace thermocline::model
