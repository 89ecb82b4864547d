#include "engine/exec/transformer.h"

#include <algorithm>
#include <array>

#include "kernels/quantize.h"

namespace thermocline::exec {
namespace {

// Weight bytes of a work item: enough that taking an item costs nothing, few enough that threads
// end together.
constexpr int kItemBytes = 96 << 10;
// Many tokens: panels that share the activations in the cache, and items a thread gets at least.
constexpr int kPanelsTogether = 8, kItemsPerThread = 8;

std::ptrdiff_t Offset(int row, int width) { return static_cast<std::ptrdiff_t>(row) * width; }

int PanelsPerItem(const kernels::PackedMatrix& matrix, int tokens, int threads) {
  if (tokens > kPanelsTogether) {
    return std::clamp(kernels::NumPanels(matrix.rows) / (threads * kItemsPerThread), 1,
                      kPanelsTogether);
  }
  const auto bytes = static_cast<int>(kernels::PanelBytes(matrix.type, matrix.cols));
  return std::max(1, kItemBytes / bytes);
}

kernels::GateActivation GateOf(model::Activation activation) {
  switch (activation) {
    case model::Activation::kRelu:
      return kernels::GateActivation::kRelu;
    case model::Activation::kFatRelu:
      return kernels::GateActivation::kFatRelu;
    case model::Activation::kDRelu:
      return kernels::GateActivation::kDRelu;
    case model::Activation::kRelu2:
      return kernels::GateActivation::kRelu2;
    case model::Activation::kGelu:
      return kernels::GateActivation::kGelu;
    case model::Activation::kGeluTanh:
      return kernels::GateActivation::kGeluTanh;
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
           .threads = p.pool.threads()}),
      group_(p.config.num_attention_heads / p.config.num_key_value_heads) {}

std::span<const float> Transformer::Forward(std::span<const int> tokens, KvCache& cache,
                                            Logits wanted) {
  const int count = static_cast<int>(tokens.size());
  CHECK(count >= 1 && count <= ws_.tokens_max);
  CHECK_LE(cache.length() + count, cache.capacity());
  CHECK(cache.Reserve(count));
  Embed(tokens, cache.length());
  for (int layer = 0; layer < config_.num_hidden_layers; ++layer) Block(layer, count, cache);
  cache.Advance(count);
  if (wanted == Logits::kNone) return {};
  const int rows = wanted == Logits::kAll ? count : 1;
  CHECK_LE(rows, ws_.logits_max);
  Head(count - rows, rows);
  return std::span(ws_.logits)
      .first(static_cast<std::size_t>(rows) * static_cast<std::size_t>(config_.vocab_size));
}

void Transformer::SetTap(FfnTap* tap) {
  tap_ = tap;
  tapped_gate_.resize(tap == nullptr ? 0 : ws_.ffn.x.size());
}

void Transformer::Embed(std::span<const int> tokens, int position) {
  const int d = config_.hidden_size;
  ForTokens(static_cast<int>(tokens.size()), [&](int t) {
    const int token = tokens[static_cast<std::size_t>(t)];
    CHECK(token >= 0 && token < config_.vocab_size);
    float* x = ws_.residual.data() + Offset(t, d);
    kernels::DequantizePackedRow(weights_.token_embedding, token, x);
    if (config_.rotary()) return;
    float* learned = ws_.hidden.x.data() + Offset(t, d);  // free until the first norm
    kernels::DequantizePackedRow(weights_.position_embedding,
                                 position + t + config_.architecture->position_offset, learned);
    ops_.add(x, learned, d);
  });
}

void Transformer::Block(int layer, int tokens, KvCache& cache) {
  const model::LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  const int n = tokens * config_.hidden_size;
  const bool own_norm = w.attn_second_norm.weight != nullptr;
  NormHidden(own_norm ? w.attn_second_norm : w.attn_norm, 0, tokens);
  Attention(layer, tokens, cache);
  if (config_.architecture->parallel_block) {
    if (own_norm) NormHidden(w.attn_norm, 0, tokens);
    FeedForward(layer, tokens);
    ops_.add(ws_.residual.data(), ws_.attention_out.data(), n);
  } else {
    ops_.add(ws_.residual.data(), ws_.attention_out.data(), n);
    NormHidden(w.ffn_norm, 0, tokens);
    FeedForward(layer, tokens);
  }
  ops_.add(ws_.residual.data(), ws_.ffn_out.data(), n);
}

void Transformer::FeedForward(int layer, int tokens) {
  const model::LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  const bool gated = config_.architecture->gated;
  const std::array products = {Product{gated ? &w.gate : &w.up, ws_.ffn.x.data()},
                               Product{&w.up, ws_.up.data()}};
  Multiply(std::span(products).first(gated ? 2 : 1), ws_.hidden, tokens);
  if (tap_ != nullptr) std::copy_n(ws_.ffn.x.data(), tapped_gate_.size(), tapped_gate_.data());
  ForTokens(tokens, [&](int t) {
    const std::ptrdiff_t at = Offset(t, config_.intermediate_size);
    ops_.gated({.gate = ws_.ffn.x.data() + at,
                .up = gated ? ws_.up.data() + at : nullptr,
                .n = config_.intermediate_size,
                .activation = GateOf(config_.hidden_act),
                .threshold = static_cast<float>(config_.fatrelu_threshold),
                .out = ws_.ffn.x.data() + at});
    Quantize(ws_.ffn, t);
  });
  if (tap_ != nullptr) {
    tap_->OnLayer({.layer = layer,
                   .tokens = tokens,
                   .residual = ws_.residual.data(),
                   .hidden = ws_.hidden.x.data(),
                   .gate = tapped_gate_.data(),
                   .neurons = ws_.ffn.x.data()});
  }
  const std::array output = {Product{&w.down, ws_.ffn_out.data()}};
  Multiply(output, ws_.ffn, tokens);
}

// A quantised head multiplies 8-bit activations, and their rounding is most of the error of the
// logits (0.06 of the 0.06 nats on Tidepool; all other products together give 0.01). So the
// rounding error itself is quantised too and multiplied as a second token: 16 bits of precision for
// the same weight bytes.
void Transformer::Head(int first, int count) {
  const int d = config_.hidden_size;
  NormHidden(weights_.output_norm, first, count);
  const std::array product = {Product{&weights_.output, ws_.logits.data()}};
  if (!kernels::Traits(weights_.output.weight.type).quantized)
    return Multiply(product, ws_.hidden, count);
  ActivationBuffer& x = ws_.head;
  for (int t = 0; t < count; ++t) {
    const std::ptrdiff_t from = Offset(t, d), rest = Offset(count + t, d);
    const kernels::Activations hidden = ws_.hidden.view(from, d);
    for (int i = 0; i < d; ++i) {
      x.x[static_cast<std::size_t>(from + i)] = hidden.x[i];
      x.x[static_cast<std::size_t>(rest + i)] =
          hidden.x[i] -
          hidden.scale[i / kernels::kActivationBlock] * static_cast<float>(hidden.q[i]);
    }
    Quantize(x, t);
    Quantize(x, count + t);
  }
  Multiply(product, x, 2 * count, /*fold=*/true);
}

void Transformer::NormHidden(const model::NormWeights& norm, int first, int tokens) {
  const int d = config_.hidden_size;
  ForTokens(tokens, [&](int t) {
    Normalize(norm, ws_.residual.data() + Offset(first + t, d), d,
              ws_.hidden.x.data() + Offset(t, d));
    Quantize(ws_.hidden, t);
  });
}

void Transformer::Normalize(const model::NormWeights& norm, const float* x, int n, float* out) {
  const auto eps = static_cast<float>(config_.norm_eps);
  if (config_.architecture->norm == model::Norm::kRms) {
    ops_.rms_norm({.x = x, .weight = norm.weight, .n = n, .eps = eps, .out = out});
  } else {
    ops_.layer_norm(
        {.x = x, .weight = norm.weight, .bias = norm.bias, .n = n, .eps = eps, .out = out});
  }
}

void Transformer::Quantize(ActivationBuffer& buffer, int token) {
  if (buffer.cols % kernels::kActivationBlock != 0) return;  // no quantised matrix has such rows
  const std::ptrdiff_t at = Offset(token, buffer.cols), block = at / kernels::kActivationBlock;
  ops_.quantize({.x = buffer.x.data() + at,
                 .n = buffer.cols,
                 .q = buffer.q.data() + at,
                 .scale = buffer.scale.data() + block,
                 .scaled_sum = buffer.scaled_sum.data() + block,
                 .sum = buffer.sum.data() + block,
                 .half_sum = buffer.half_sum.data() + block});
}

void Transformer::Multiply(std::span<const Product> products, const ActivationBuffer& input,
                           int tokens, bool fold) {
  const auto panels_per_item = [&](const kernels::PackedMatrix& matrix) {
    return PanelsPerItem(matrix, tokens, pool_.threads());
  };
  const auto num_items = [&](const kernels::PackedMatrix& matrix) {
    const int per_item = panels_per_item(matrix);
    return (kernels::NumPanels(matrix.rows) + per_item - 1) / per_item;
  };
  int items = 0;
  for (const Product& product : products) items += num_items(product.linear->weight);
  pool_.Run(items, [&](int item, int) {
    for (const Product& product : products) {
      const kernels::PackedMatrix& matrix = product.linear->weight;
      const int product_items = num_items(matrix), per_item = panels_per_item(matrix);
      if (item < product_items) {
        return MultiplyPanels(product, input, tokens, fold, item * per_item,
                              std::min(kernels::NumPanels(matrix.rows), (item + 1) * per_item));
      }
      item -= product_items;
    }
  });
}

void Transformer::MultiplyPanels(const Product& product, const ActivationBuffer& input, int tokens,
                                 bool fold, int panel_begin, int panel_end) {
  const kernels::PackedMatrix& matrix = product.linear->weight;
  ops_.gemm({.weights = matrix,
             .activations = input.view(),
             .tokens = tokens,
             .out = product.out,
             .out_stride = matrix.rows,
             .panel_begin = panel_begin,
             .panel_end = panel_end});
  const int row = panel_begin * kernels::kPanelRows;
  const int rows = std::min(matrix.rows, panel_end * kernels::kPanelRows) - row;
  const int results = fold ? tokens / 2 : tokens;
  for (int t = 0; t < results; ++t) {
    float* out = product.out + Offset(t, matrix.rows) + row;
    if (fold) ops_.add(out, out + Offset(results, matrix.rows), rows);
    if (product.linear->bias != nullptr) ops_.add(out, product.linear->bias + row, rows);
  }
}

}  // namespace thermocline::exec
