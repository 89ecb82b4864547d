#include "engine/exec/input_sparsity.h"

#include <algorithm>

#include "engine/base/index.h"
#include "engine/nn/offset.h"

namespace thermocline::exec {
namespace {

using model::InputKind;

int ColsMax(const model::ModelConfig& c) {
  return std::max({c.hidden_size, c.num_attention_heads * c.head_dim, c.intermediate_size});
}
int RowsMax(const model::ModelConfig& c) {
  return std::max({c.hidden_size, 2 * c.intermediate_size,
                   (c.num_attention_heads + 2 * c.num_key_value_heads) * c.head_dim});
}

}  // namespace

InputSparsity::InputSparsity(const Params& p)
    : context_(p.context),
      predictors_(p.predictors),
      weights_(p.weights),
      products_({.ops = p.context.ops,
                 .pool = p.context.pool,
                 .multiplier = p.context.multiplier,
                 .tokens_max = p.tokens_max,
                 .cols_max = ColsMax(p.context.config),
                 .rows_max = RowsMax(p.context.config)}),
      gate_(base::Area(p.tokens_max, p.context.config.intermediate_size)),
      up_(p.context.gated() ? gate_.size() : 0),
      counts_(p.context.weights.layers.size()) {}

std::optional<InputSparsity> InputSparsity::ForRules(const predictor::Predictors* predictors,
                                                     const model::InputMajor* weights,
                                                     const ffn::FfnContext& context,
                                                     int tokens_max) {
  if (predictors == nullptr || predictors->layers.empty() ||
      !predictors->layers.front().inputs.has_value())
    return std::nullopt;
  return std::optional<InputSparsity>(
      std::in_place, Params{.context = context,
                            .predictors = *predictors,
                            .weights = weights,
                            .tokens_max = std::min(tokens_max, ffn::kSparseTokensMax)});
}

std::size_t InputSparsity::Bytes(const model::ModelConfig& config, int tokens_max, int threads) {
  return nn::InputProducts::Bytes(tokens_max, ColsMax(config), RowsMax(config), threads) +
         2 * base::Area(tokens_max, config.intermediate_size) * sizeof(float);
}

Status InputSparsity::Can(const model::ModelConfig& config) {
  const model::Architecture& a = *config.architecture;
  const char* what = config.experts.any()     ? "a mixture of experts"
                     : config.latent.any()    ? "latent attention"
                     : config.altup.any()     ? "several streams of the residual (AltUp)"
                     : config.recurrent.any() ? "recurrent layers"
                     : a.output_gate != model::OutputGate::kNone ? "gates behind attention"
                     : a.encoder        ? "tokens that see those behind them"
                     : a.window_heads   ? "heads that differ by layer"
                     : a.parallel_block ? "attention and network beside one another"
                     : a.sub_norms      ? "a norm inside its network"
                                        : nullptr;
  if (what == nullptr) return OkStatus();
  return base::FailedPrecondition("mode 'inputs' is not there for a model with ", what, " (family ",
                                  a.name, "); use dense");
}

void InputSparsity::Project(const float* hidden, int tokens, float* q, float* k, float* v) {
  const model::LayerWeights& w = context_.layer(layer_);
  const std::array products = {nn::Product{&w.q, q}, nn::Product{&w.k, k}, nn::Product{&w.v, v}};
  const std::size_t count = w.k.weight.rows > 0 ? products.size() : 1;
  Multiply(InputKind::kAttention, std::span(products).first(count), hidden, tokens);
}

void InputSparsity::Output(const float* attention, int tokens, float* out) {
  const std::array products = {nn::Product{&context_.layer(layer_).attn_output, out}};
  Multiply(InputKind::kAttnOutput, products, attention, tokens);
}

void InputSparsity::FeedForward(const float* hidden, int tokens, float* out) {
  const model::LayerWeights& w = context_.layer(layer_);
  const int f = context_.config.intermediate_size;
  const bool gated = context_.gated();
  const std::array products = {
      nn::Product::Of(gated ? w.gate : w.up, gate_.data()),
      nn::Product::Of(w.up, up_.data()),
  };
  Multiply(InputKind::kFfn, std::span(products).first(gated ? 2 : 1), hidden, tokens);
  constexpr int kPiece = 1024;
  const int pieces = (f + kPiece - 1) / kPiece;
  context_.pool.Run(tokens * pieces, [&](int item, int) {
    const int at = item % pieces * kPiece;
    float* h = gate_.data() + nn::Offset(item / pieces, f) + at;
    context_.Activate(layer_,
                      {.gate = h,
                       .up = gated ? up_.data() + nn::Offset(item / pieces, f) + at : nullptr,
                       .n = std::min(kPiece, f - at),
                       .out = h});
  });
  const std::array down = {nn::Product{&w.down, out}};
  Multiply(InputKind::kDown, down, gate_.data(), tokens);
}

void InputSparsity::Multiply(InputKind kind, std::span<const nn::Product> products, const float* x,
                             int tokens) {
  const auto index = static_cast<std::size_t>(kind);
  const predictor::InputRules::Rule& rule = predictors_.layers[layer_].inputs->of[index];
  const model::InputMatrix* copy = weights_ != nullptr ? &weights_->layers[layer_][index] : nullptr;
  if (copy != nullptr && copy->rows.data == nullptr) copy = nullptr;
  counts_[layer_][index] += products_.Multiply(
      products, copy, {.threshold = rule.thresholds[point_], .weights = rule.weights}, x, tokens);
}

}  // namespace thermocline::exec
