#include "engine/ffn/all_neurons.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "engine/base/index.h"
#include "engine/ffn/gate_cut.h"
#include "engine/ffn/row_product.h"
#include "engine/nn/offset.h"
#include "engine/predictor/predictors.h"

namespace thermocline::ffn {

AllNeurons::AllNeurons(const FfnContext& context, int tokens_max)
    : context_(context),
      tokens_max_(tokens_max),
      ids_(context.config.intermediate_size),
      up_(context.gated() ? base::Area(tokens_max, context.config.intermediate_size) : 0) {
  std::iota(ids_.begin(), ids_.end(), 0);
}

std::size_t AllNeurons::Bytes(const FfnSizes& sizes) {
  const int up = sizes.config.architecture->gated ? sizes.tokens_max : 0;
  return base::Area(1, sizes.neurons()) * sizeof(int) +
         base::Area(up, sizes.neurons()) * sizeof(float);
}

void AllNeurons::SetTap(FfnTap* tap) {
  tap_ = tap;
  tapped_gate_.resize(tap == nullptr ? 0
                                     : base::Area(tokens_max_, context_.config.intermediate_size));
}

FoundNeurons AllNeurons::Compute(int layer, const FfnInput& input, nn::ActivationBuffer& h) {
  const int f = context_.config.NetworkSizeOf(layer), tokens = input.tokens;
  h.cols = f;
  MultiplyRows(layer, input, h.x.data());
  if (const double cut = context_.config.altup.CutOf(layer); cut > 0) {
    CHECK(context_.ranges.all());
    context_.pool.Run(tokens, [&](int t, int) { CutGates(cut, h.x.data() + nn::Offset(t, f), f); });
  }
  // Experts beside the network have taps of their own.
  const bool observed = tapped() && !context_.layer(layer).experts.any();
  if (observed) std::copy_n(h.x.data(), nn::Offset(tokens, f), tapped_gate_.data());
  const std::span<const int> ids =
      context_.ranges.all() ? std::span(ids_).first(f) : std::span(context_.ranges.Members(layer));
  context_.pool.Run(tokens, [&](int t, int) {
    float* row = h.x.data() + nn::Offset(t, f);
    context_.Activate(layer, {.gate = row,
                              .up = context_.gated() ? up_.data() + nn::Offset(t, f) : nullptr,
                              .n = base::IntSize(ids),
                              .out = row});
  });
  if (observed) {
    tap_->OnLayer({.layer = layer,
                   .tokens = tokens,
                   .residual = input.residual,
                   .hidden = input.hidden.x.data(),
                   .gate = tapped_gate_.data(),
                   .neurons = h.x.data()});
  }
  return {ids, h.x.data(), f, tokens > 1};
}

void AllNeurons::MultiplyRows(int layer, const FfnInput& input, float* gates) {
  const model::LayerWeights& w = context_.layer(layer);
  const model::NeuronMatrix& deciding = predictor::DecidingMatrix(w);
  if (context_.ranges.all()) {
    const std::array products = {nn::Product::Of(deciding, gates),
                                 nn::Product::Of(w.up, up_.data())};
    return context_.multiplier.Multiply(std::span(products).first(context_.gated() ? 2 : 1),
                                        input.hidden.view(), input.tokens);
  }
  context_.ForRanges(layer, [&](const NeuronRange& range, int thread) {
    const auto multiply = [&](const model::NeuronMatrix& matrix, float* out) {
      Multiply(context_,
               {.matrix = matrix,
                .hidden = input.hidden,
                .tokens = input.tokens,
                .range = range,
                .ids = range.ids(),
                .count = range.count,
                .out = out + range.begin,
                .out_stride = context_.config.intermediate_size},
               thread);
    };
    multiply(deciding, gates);
    if (context_.gated()) multiply(w.up, up_.data());
  });
}

}  // namespace thermocline::ffn
