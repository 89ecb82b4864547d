// Every neuron of a layer, by products of whole matrices: prompts, dense layers and taps.
#include <algorithm>
#include <array>

#include "engine/ffn/sparse_ffn.h"
#include "engine/nn/offset.h"

namespace thermocline::ffn {

void SparseFfn::FindWide(int layer, const Input& input) {
  const int f = config_.intermediate_size;
  MultiplyWide(layer, input);
  if (tap_ != nullptr) std::copy_n(ffn_.x.data(), nn::Offset(input.tokens, f), tapped_gate_.data());
  const std::span<const int> ids = MemberIds(layer);
  const int count = static_cast<int>(ids.size());
  pool_.Run(input.tokens, [&](int t, int) {
    float* h = ffn_.x.data() + nn::Offset(t, f);
    ops_.gated({.gate = h,
                .up = gated_ ? up_.data() + nn::Offset(t, f) : nullptr,
                .n = count,
                .activation = activation_,
                .threshold = static_cast<float>(config_.fatrelu_threshold),
                .out = h});
  });
  if (tap_ != nullptr) {
    tap_->OnLayer({.layer = layer,
                   .tokens = input.tokens,
                   .residual = input.residual,
                   .hidden = input.hidden.x.data(),
                   .gate = tapped_gate_.data(),
                   .neurons = ffn_.x.data()});
  }
  if (input.tokens == 1 && counting_) Count(layer, {}, count);
  if (input.tokens == 1 && trace_ != nullptr) trace_->Add(ids);
  found_ = {ids.data(), count, ffn_.x.data(), f, input.tokens > 1};
}

// Products of the deciding rows into ffn_ and of up's into up_, rows [F] apart.
void SparseFfn::MultiplyWide(int layer, const Input& input) {
  const model::LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  const model::NeuronMatrix& first = predictor::DecidingMatrix(w);
  if (members_ == nullptr) {
    const std::array products = {nn::Product::Of(first, ffn_.x.data()),
                                 nn::Product::Of(w.up, up_.data())};
    return multiplier_.Multiply(std::span(products).first(gated_ ? 2 : 1), input.hidden.view(),
                                input.tokens);
  }
  pool_.Run(NumRanges(layer), [&](int item, int thread) {
    const Range range = RangeOf(layer, item);
    MultiplyInto(first, input, range, range.ids(), range.count, thread,
                 {ffn_.x.data() + range.begin, config_.intermediate_size});
    if (gated_)
      MultiplyInto(w.up, input, range, range.ids(), range.count, thread,
                   {up_.data() + range.begin, config_.intermediate_size});
  });
}

// The product with down's columns of what Find left, where there are no down rows.
void SparseFfn::MultiplyDown(int layer, int tokens, float* out) {
  const int f = config_.intermediate_size;
  for (int t = 0; found_.h != ffn_.x.data() && t < tokens; ++t) {
    float* h = ffn_.x.data() + nn::Offset(t, f);
    std::fill_n(h, f, 0.0F);
    for (int k = 0; k < found_.count; ++k)
      h[found_.ids[k]] = chosen_[static_cast<std::size_t>(nn::Offset(t, f) + k)];
  }
  pool_.Run(tokens, [&](int t, int) { nn::QuantizeToken(ops_, ffn_, t); });
  const model::LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  const std::array output = {nn::Product{&w.down, out}};
  multiplier_.Multiply(output, ffn_.view(), tokens);
}

}  // namespace thermocline::ffn
