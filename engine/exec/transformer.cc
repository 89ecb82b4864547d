#include "engine/exec/transformer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/quantize.h"

namespace thermocline::exec {
namespace {

// Panels one work item takes: enough that taking an item costs nothing, few enough that threads end
// together.
constexpr int kItemBytes = 96 << 10;

std::ptrdiff_t Offset(int row, int width) { return static_cast<std::ptrdiff_t>(row) * width; }

int PanelsPerItem(const kernels::PackedMatrix& matrix) {
  const auto bytes = static_cast<int>(kernels::PanelBytes(matrix.type, matrix.cols));
  return std::max(1, kItemBytes / bytes);
}

kernels::GateActivation GateOf(model::Activation activation) {
  switch (activation) {
    case model::Activation::kRelu:
      return kernels::GateActivation::kRelu;
    case model::Activation::kFatRelu:
      return kernels::GateActivation::kFatRelu;
    case model::Activation::kSilu:
      break;
  }
  return kernels::GateActivation::kSilu;
}

}  // namespace

Transformer::Transformer(const Params& p)
    : config_(p.config),
      weights_(p.weights),
      ops_(p.ops),
      pool_(p.pool),
      ws_({.config = p.config,
           .tokens_max = p.tokens_max,
           .logits_max = p.all_logits ? p.tokens_max : 1,
           .context_length = p.context_length,
           .threads = p.pool.threads()}) {}

std::span<const float> Transformer::Forward(std::span<const int> tokens, KvCache& cache,
                                            Logits wanted) {
  const int count = static_cast<int>(tokens.size());
  CHECK(count >= 1 && count <= ws_.tokens_max);
  CHECK_LE(cache.length() + count, cache.capacity());
  Embed(tokens);
  for (int layer = 0; layer < config_.num_hidden_layers; ++layer) {
    Attention(layer, count, cache);
    FeedForward(layer, count);
  }
  cache.SetLength(cache.length() + count);
  if (wanted == Logits::kNone) return {};
  const int rows = wanted == Logits::kAll ? count : 1;
  CHECK_LE(rows, ws_.logits_max);
  for (int row = 0; row < rows; ++row) Head(count - rows + row, row);
  return std::span(ws_.logits)
      .first(static_cast<std::size_t>(rows) * static_cast<std::size_t>(config_.vocab_size));
}

// A quantised head multiplies 8-bit activations, and their rounding is most of the error of the
// logits (0.06 of the 0.06 nats on Tidepool; all other products together give 0.01). So the
// rounding error itself is quantised too and multiplied as a second token: 16 bits of precision for
// the same weight bytes.
void Transformer::Head(int token, int row) {
  const int d = config_.hidden_size, vocab = config_.vocab_size;
  Norm(weights_.output_norm, token, 1);
  if (!kernels::Traits(weights_.output.type).quantized) {
    const std::array product = {Product{&weights_.output, ws_.logits.data() + Offset(row, vocab)}};
    return Multiply(product, ws_.hidden, 1);
  }
  ActivationBuffer& x = ws_.head;
  for (int i = 0; i < d; ++i) {
    const std::size_t at = static_cast<std::size_t>(i);
    x.x[at] = ws_.hidden.x[at];
    x.x[static_cast<std::size_t>(d + i)] =
        ws_.hidden.x[at] -
        ws_.hidden.scale[at / kernels::kActivationBlock] * static_cast<float>(ws_.hidden.q[at]);
  }
  Quantize(x, 2);
  const std::array product = {Product{&weights_.output, ws_.head_out.data()}};
  Multiply(product, x, 2);
  float* logits = ws_.logits.data() + Offset(row, vocab);
  std::copy_n(ws_.head_out.data(), vocab, logits);
  ops_.add(logits, ws_.head_out.data() + vocab, vocab);
}

void Transformer::Embed(std::span<const int> tokens) {
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    CHECK(tokens[t] >= 0 && tokens[t] < config_.vocab_size);
    kernels::DequantizePackedRow(
        weights_.token_embedding, tokens[t],
        ws_.residual.data() + Offset(static_cast<int>(t), config_.hidden_size));
  }
}

void Transformer::Attention(int layer, int tokens, KvCache& cache) {
  const model::LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  const int heads = config_.num_attention_heads, head_dim = config_.head_dim;
  const int group = heads / config_.num_key_value_heads;
  const int begin = cache.length();
  Norm(w.attn_norm, 0, tokens);
  const std::array products = {Product{&w.q, ws_.q.data()}, Product{&w.k, ws_.k.data()},
                               Product{&w.v, ws_.v.data()}};
  Multiply(products, ws_.hidden, tokens);
  for (int t = 0; t < tokens; ++t) StoreKeysAndValues(layer, t, begin + t, cache);

  pool_.Run(tokens * heads, [&](int item, int thread) {
    const int t = item / heads, head = item % heads;
    ops_.attention({.q = ws_.q.data() + Offset(item, head_dim),
                    .k = cache.keys(layer, head / group),
                    .v = cache.values(layer, head / group),
                    .cached_tokens = begin + t + 1,
                    .head_dim = head_dim,
                    .stride = cache.stride(),
                    .scale = 1.0F / std::sqrt(static_cast<float>(head_dim)),
                    .scores = ws_.scores[static_cast<std::size_t>(thread)].data(),
                    .out = ws_.attention.x.data() + Offset(item, head_dim)});
  });
  Quantize(ws_.attention, tokens);
  const std::array output = {Product{&w.attn_output, ws_.block_out.data()}};
  Multiply(output, ws_.attention, tokens);
  AddToResidual(tokens);
}

void Transformer::StoreKeysAndValues(int layer, int token, int position, KvCache& cache) {
  const int head_dim = config_.head_dim, kv_heads = config_.num_key_value_heads,
            half = config_.rope_dim / 2;
  const float* cos = ws_.rope_cos.data() + Offset(position, half);
  const float* sin = ws_.rope_sin.data() + Offset(position, half);
  float* q = ws_.q.data() + Offset(token, config_.num_attention_heads * head_dim);
  float* k = ws_.k.data() + Offset(token, kv_heads * head_dim);
  const float* v = ws_.v.data() + Offset(token, kv_heads * head_dim);
  ops_.rope({q, config_.num_attention_heads, head_dim, config_.rope_dim, cos, sin});
  ops_.rope({k, kv_heads, head_dim, config_.rope_dim, cos, sin});
  for (int head = 0; head < kv_heads; ++head) {
    ops_.to_half(k + Offset(head, head_dim), head_dim,
                 cache.keys(layer, head) + Offset(position, cache.stride()));
    ops_.to_half(v + Offset(head, head_dim), head_dim,
                 cache.values(layer, head) + Offset(position, cache.stride()));
  }
}

void Transformer::FeedForward(int layer, int tokens) {
  const model::LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  Norm(w.ffn_norm, 0, tokens);
  const std::array products = {Product{&w.gate, ws_.ffn.x.data()}, Product{&w.up, ws_.up.data()}};
  Multiply(products, ws_.hidden, tokens);
  ops_.gated({.gate = ws_.ffn.x.data(),
              .up = ws_.up.data(),
              .n = tokens * config_.intermediate_size,
              .activation = GateOf(config_.hidden_act),
              .threshold = static_cast<float>(config_.fatrelu_threshold),
              .out = ws_.ffn.x.data()});
  Quantize(ws_.ffn, tokens);
  const std::array output = {Product{&w.down, ws_.block_out.data()}};
  Multiply(output, ws_.ffn, tokens);
  AddToResidual(tokens);
}

void Transformer::Norm(const float* weight, int first_token, int tokens) {
  const int d = config_.hidden_size;
  for (int t = 0; t < tokens; ++t) {
    ops_.rms_norm({.x = ws_.residual.data() + Offset(first_token + t, d),
                   .weight = weight,
                   .n = d,
                   .eps = static_cast<float>(config_.rms_norm_eps),
                   .out = ws_.hidden.x.data() + Offset(t, d)});
  }
  Quantize(ws_.hidden, tokens);
}

void Transformer::Quantize(ActivationBuffer& buffer, int tokens) {
  if (buffer.cols % kernels::kActivationBlock != 0) return;  // no quantised matrix has such rows
  ops_.quantize({.x = buffer.x.data(),
                 .n = tokens * buffer.cols,
                 .q = buffer.q.data(),
                 .scale = buffer.scale.data(),
                 .sum = buffer.sum.data()});
}

void Transformer::Multiply(std::span<const Product> products, const ActivationBuffer& input,
                           int tokens) {
  int items = 0;
  for (const Product& product : products) {
    items += (kernels::NumPanels(product.weights->rows) + PanelsPerItem(*product.weights) - 1) /
             PanelsPerItem(*product.weights);
  }
  pool_.Run(items, [&](int item, int) {
    for (const Product& product : products) {
      const int per_item = PanelsPerItem(*product.weights),
                panels = kernels::NumPanels(product.weights->rows);
      const int product_items = (panels + per_item - 1) / per_item;
      if (item >= product_items) {
        item -= product_items;
        continue;
      }
      ops_.gemm({.weights = *product.weights,
                 .activations = input.view(),
                 .tokens = tokens,
                 .out = product.out,
                 .out_stride = product.weights->rows,
                 .panel_begin = item * per_item,
                 .panel_end = std::min(panels, (item + 1) * per_item)});
      return;
    }
  });
}

void Transformer::AddToResidual(int tokens) {
  ops_.add(ws_.residual.data(), ws_.block_out.data(), tokens * config_.hidden_size);
}

}  // namespace thermocline::exec
