#include "engine/exec/layer_inputs.h"

#include <array>
#include <cmath>

#include "engine/ffn/ffn_context.h"
#include "engine/nn/for_tokens.h"
#include "engine/nn/normalize.h"
#include "engine/nn/offset.h"

namespace thermocline::exec {

LayerInputs::LayerInputs(const Params& p)
    : config_(p.config),
      weights_(p.weights),
      ops_(p.ops),
      pool_(p.pool),
      multiplier_(p.multiplier),
      size_(p.config.hidden_size),
      own_(p.config.altup.embedding_dim) {
  const int all = config_.num_hidden_layers * own_;
  inputs_.resize(base::Area(p.tokens_max, all));
  table_row_.resize(all);
  gated_.Resize(p.tokens_max, own_);
}

std::size_t LayerInputs::Bytes(const model::ModelConfig& config, int tokens_max) {
  const int own = config.altup.embedding_dim;
  if (own == 0) return 0;
  return base::Area(tokens_max + 1, config.num_hidden_layers * own) * sizeof(float) +
         nn::ActivationBuffer::Bytes(tokens_max, own);
}

void LayerInputs::Multiply(const model::Linear& linear, const nn::ActivationBuffer& input,
                           int tokens, float* out) {
  const std::array products = {nn::Product{&linear, out}};
  multiplier_.Multiply(products, input.view(), tokens);
}

// Tokens after the table's end, which stand for images and sounds, use the first row.
// Source: transformers' get_per_layer_inputs.
Status LayerInputs::Begin(std::span<const int> tokens, const nn::ActivationBuffer& embeddings) {
  Multiply(weights_.altup.layer_inputs, embeddings, base::IntSize(tokens), inputs_.data());
  const model::FileRows& table = *weights_.altup.layer_embedding;
  for (int t = 0; t < base::IntSize(tokens); ++t) {
    RETURN_IF_ERROR(table.Read(tokens[t] < table.rows() ? tokens[t] : 0, table_row_));
    Finish(t, table_row_);
  }
  return OkStatus();
}

void LayerInputs::Finish(int token, std::span<const float> table) {
  const int all = base::IntSize(table);
  const float projected = 1 / std::sqrt(static_cast<float>(size_)),
              looked_up = std::sqrt(static_cast<float>(own_)), root_half = std::sqrt(0.5F);
  float* row = inputs_.data() + nn::Offset(token, all);
  for (int i = 0; i < all; ++i) row[i] *= projected;
  for (int at = 0; at < all; at += own_)
    nn::Normalize(ops_, config_, weights_.altup.layer_input_norm, row + at, own_, row + at);
  for (int i = 0; i < all; ++i) row[i] = (row[i] + looked_up * table[i]) * root_half;
}

void LayerInputs::Contribute(int layer, int tokens, const nn::ActivationBuffer& input, float* out) {
  const model::AltUpWeights& w = weights_.layers[layer].altup;
  Multiply(w.input_gate, input, tokens, gated_.x.data());
  const auto activation = ffn::GateOf(config_.hidden_act);
  for (int t = 0; t < tokens; ++t) {
    float* row = gated_.x.data() + nn::Offset(t, own_);
    ops_.gated({.gate = row,
                .up = inputs_.data() + nn::Offset(t * config_.num_hidden_layers + layer, own_),
                .n = own_,
                .activation = activation,
                .out = row});
    nn::QuantizeToken(ops_, gated_, t);
  }
  Multiply(w.input_proj, gated_, tokens, out);
  nn::ForTokens(pool_, tokens, [&](int t) {
    float* row = out + nn::Offset(t, size_);
    nn::Normalize(ops_, config_, w.input_norm, row, size_, row);
  });
}

}  // namespace thermocline::exec
