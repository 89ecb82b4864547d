#include "engine/exec/token_embedding.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/nn/for_tokens.h"
#include "engine/nn/normalize.h"
#include "engine/nn/offset.h"
#include "kernels/quantize.h"

namespace thermocline::exec {

TokenEmbedding::TokenEmbedding(const Params& p)
    : config_(p.config), weights_(p.weights), ops_(p.ops), pool_(p.pool) {
  if (config_.architecture->embedding_norm) ones_.assign(config_.hidden_size, 1.0F);
}

void TokenEmbedding::Compute(const StepTokens& step, float* residual, float* scratch) {
  const int d = config_.hidden_size;
  if (config_.architecture->encoder_norms) SetTypes(step);
  nn::ForTokens(pool_, step.count(), [&](int t) {
    const int token = step.ids()[t];
    CHECK(token >= 0 && token < config_.vocab_size);
    float* x = residual + nn::Offset(t, d);
    float* const row = scratch + nn::Offset(t, d);
    kernels::DequantizePackedRow(weights_.token_embedding, token, x);
    if (!ones_.empty()) nn::Normalize(ops_, config_, {.weight = ones_.data()}, x, d, x);
    nn::Scale(config_.embedding_scale, x, d);
    if (config_.learned_positions()) {
      const int offset = config_.architecture->position_offset;
      kernels::DequantizePackedRow(weights_.position_embedding, step.place(t).position + offset,
                                   row);
      ops_.add(x, row, d);
    }
    if (config_.architecture->encoder_norms) AddEncoders(t, x, row);
  });
}

void TokenEmbedding::AddEncoders(int token, float* x, float* row) const {
  if (weights_.type_embedding.rows > 0) {
    kernels::DequantizePackedRow(weights_.type_embedding, types_[token], row);
    ops_.add(x, row, config_.hidden_size);
  }
  nn::Normalize(ops_, config_, weights_.embedding_norm, x, config_.hidden_size, x);
}

void TokenEmbedding::SetTypes(const StepTokens& step) {
  types_.assign(step.count(), 0);
  if (weights_.type_embedding.rows < 2 || config_.separator_token < 0) return;
  bool behind = std::ranges::find(step.before(), config_.separator_token) != step.before().end();
  for (int t = 0; t < step.count(); ++t) {
    if (step.place(t).position == 0) behind = false;  // another text
    types_[t] = behind ? 1 : 0;
    behind = behind || step.ids()[t] == config_.separator_token;
  }
}

}  // namespace thermocline::exec
