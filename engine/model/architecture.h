// The differences between model families, as data: the one transformer (exec/transformer.h) reads
// them.
//
//   sequential block:  x += attention(norm1(x));  x += ffn(norm2(x))
//   parallel block:    x += attention(norm1(x)) + ffn(norm(x)), norm = norm1, or a second norm
//   norms after:       x += norm(attention(x));  x += norm(ffn(x)); or before and after
//   norms of the sum:  x = norm(x + attention(x));  x = norm(x + ffn(x))
//   gated ffn:         down(act(gate(n)) * up(n));  plain: down(act(up(n)))
// Biases beyond `qkv_bias` need no entry: a tensor "*.bias" that the file has is added.
#pragma once

#include <span>
#include <string_view>

#include "engine/api/activation.h"
#include "engine/base/status.h"
#include "engine/model/expert_config.h"
#include "engine/model/recurrent_config.h"

namespace thermocline::model {

enum class Norm { kRms, kLayer };
// kDistance: scores fall with the distance of two tokens (engine/nn/alibi.h).
enum class Position { kRotaryPairs, kRotaryHalves, kLearned, kDistance };
// The bias of Q, K and V. kAlone: every layer has it, attention's output need not have one.
// kWithOutput: a layer that has it must have one of attention's output too. kOptional: either.
enum class QkvBias { kAlone, kWithOutput, kOptional };
// The position of the norms of attention and feed-forward network: before, on their inputs; after,
// on their outputs; of the sum: on the residual after it has got an output.
enum class NormPlace { kBefore, kAfter, kBoth, kOfSum };
// The layers with a window: of each period of layers the first, all but the first, or all but the
// last.
enum class WindowPlace { kFirst, kButFirst, kButLast };
// The gate of attention's output. kOfQuery: a sigmoid's, behind each head of q; the others have a
// matrix of their own, with a row for each element or, of softplus, perhaps for each head.
enum class OutputGate { kNone, kOfQuery, kSigmoid, kSoftplus };
using thermocline::Activation;

// True if most activations are exactly zero, not just small.
inline constexpr bool HasTrueZeros(Activation activation) {
  return activation == Activation::kRelu || activation == Activation::kFatRelu ||
         activation == Activation::kDRelu || activation == Activation::kRelu2;
}

struct Architecture {
  std::string_view name;     // GGUF's general.architecture
  std::string_view hf_name;  // Hugging Face's model_type; "" = none
  Norm norm;
  Position position;
  Activation activation;  // the default of the family
  bool gated;             // the network has a gate beside up
  bool parallel_block;
  bool head_norm;      // `norm` of every query and key head before rotation
  bool wide_norm;      // one `norm` over all heads together
  bool second_norm;    // parallel blocks: attention may have a separate norm
  bool norm_plus_one;  // Hugging Face files store a norm's weight less 1
  QkvBias qkv_bias;
  int position_offset;        // learned positions: rows before position 0
  bool hf_pairs;              // Hugging Face files store rotary pairs as pairs
  bool hf_gpt_oss;            // experts are stored as in model/huggingface/stored_experts.h
  std::string_view ffn_norm;  // GGUF's name of the norm before the feed-forward network
  bool optional_norms;        // head_norm: the family has files without them, too
  bool biased;                // every product has a bias, the router's and the experts' too
  bool sinks;                 // attention: each head has a sink, a score without a value
  int window_period;          // the default of the family
  WindowPlace window_place;
  bool unrotated;               // with a window, layers without it are not rotated
  int unrotated_period;         // layers whose 1-based number it divides are not rotated; 0: none
  bool yarn_truncate;           // the dimensions between which yarn blends are rounded to integers
  bool scales;                  // embedding, residual, attention and logits may be scaled
  bool logits_times_scale;      // the field of the logits' scale is a factor, not a divisor
  bool embedding_root;          // the embedding is multiplied by the root of D
  bool embedding_norm = false;  // the embedding is normed, without weights
  double post_norm_eps = 0;     // of the norms behind attention and network; 0: as the others
  bool plain_output_norm = false;  // norm_plus_one: not of the last norm
  bool norm_after_rope;            // head_norm follows the rotation
  bool value_norm;                 // every value head is normed, without weights
  bool altup;                      // model/altup.h
  bool temperature;                // queries grow with the position (Ministral 3)
  bool unscaled_window_rope;       // layers with a window are rotated without scaling
  double window_theta;             // default theta of layers with a window; 0: as the others
  NormPlace norm_place;
  bool sub_norms;  // norms on the inputs of attention's output and of down (BitNet)
  // True if Hugging Face's post_attention_layernorm is the norm of attention's output.
  bool hf_norm_after_attention;
  bool latent;                          // attention is latent (model/latent_attention.h)
  bool indexed = false;                 // an indexer chooses the keys of long contexts
  Mixer recurrent = Mixer::kAttention;  // of layers without attention; kAttention: none
  OutputGate output_gate = OutputGate::kNone;
  bool tiled_heads = false;  // as RecurrentConfig::tiled
  bool one_part = false;     // a layer is a mixer or a feed-forward network, with one norm
  std::string_view output_norm = "output_norm";  // GGUF's name of the last norm
  int hf_position_skip = 0;    // learned positions: rows of Hugging Face files that GGUF files lack
  bool encoder = false;        // tokens see those behind them, and there is no head
  bool one_separator = false;  // as Vocabulary's
  bool encoder_norms = false;  // encoder: the embedding is normed, with weights
  // Windows are chunks of positions: a token sees those of its own chunk before it.
  bool chunked = false;
  bool temperature_unrotated = false;  // temperature: of unrotated layers, positions from 1 on
  bool turned_experts = false;         // Hugging Face files store experts as [E, inputs, outputs]
  bool window_queries = false;         // layers with a window have another number of query heads
  bool window_heads = false;           // layers with a window have heads of another size and number
  bool layer_inputs = false;    // a layer adds its own embedding of the token (exec/layer_inputs.h)
  bool layer_scale = false;     // a layer's output is multiplied by one number
  bool beside_experts = false;  // a layer with experts has a dense network too, both normed
  // Dense layers before those with experts: they have no window and are rotated all the same.
  bool full_lead = false;
  // The defaults of mixtures.
  RouterConfig router = {};
  bool shared_gated = false;
  bool shared_averaged = false;
};

// Unimplemented lists the supported names.
Result<const Architecture*> FindArchitecture(std::string_view name);
Result<const Architecture*> FindHuggingFaceArchitecture(std::string_view model_type);

// Returns the entry of the same family with another norm, for families that have both; otherwise
// the given one.
const Architecture* WithNorm(const Architecture& architecture, Norm norm);

// silu, swish, relu, fatrelu, drelu, relu2, gelu, gelu_tanh, gelu_new, gelu_pytorch_tanh,
// clamped_swiglu, xielu.
Result<Activation> ParseActivation(std::string_view name);
using thermocline::ActivationName;

}  // namespace thermocline::model
