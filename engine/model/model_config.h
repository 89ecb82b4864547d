// What a model's shape is. Field names are those of Hugging Face's config.json.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/status.h"

namespace thermocline::model {

enum class Activation { kSilu, kRelu, kFatRelu };

Result<Activation> ParseActivation(const std::string& name);  // silu, relu, fatrelu
const char* ActivationName(Activation activation);

struct ModelConfig {
  std::string architecture;         // "llama"
  int hidden_size = 0;              // D
  int intermediate_size = 0;        // F
  int num_hidden_layers = 0;        // L
  int num_attention_heads = 0;      // H
  int num_key_value_heads = 0;      // K
  int head_dim = 0;                 // Dh
  int rope_dim = 0;                 // rotated dimensions of a head
  int vocab_size = 0;               // V
  int max_position_embeddings = 0;  // tokens
  double rms_norm_eps = 1e-5;
  double rope_theta = 10000.0;
  Activation hidden_act = Activation::kSilu;
  double fatrelu_threshold = 0;
  bool tie_word_embeddings = false;

  std::int64_t num_parameters() const;
};

// InvalidArgument naming the field, the value and the bound: zero or huge sizes, heads that do not
// divide, odd rotary dimensions. After this, products of two sizes fit 63 bits.
Status ValidateConfig(const ModelConfig& config);

}  // namespace thermocline::model
