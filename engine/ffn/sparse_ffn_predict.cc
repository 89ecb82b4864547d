// Which neurons of a layer a token will probably need.
#include <algorithm>
#include <array>
#include <cmath>

#include "engine/ffn/sparse_ffn.h"
#include "engine/nn/offset.h"

namespace thermocline::ffn {

void SparseFfn::PreparePredictor(int layer, const Input& input, FfnMode mode) {
  if (mode == FfnMode::kLowRank) PrepareLowRank(layer, input);
  if (mode == FfnMode::kSign) PrepareSigns(layer, input);
}

void SparseFfn::PrepareLowRank(int layer, const Input& input) {
  const predictor::LowRankRun& run = *predictors_->layers[static_cast<std::size_t>(layer)].low_rank;
  const int rank = run.fc1.rows;
  if (run.before_norm) {
    std::copy_n(input.residual, nn::Offset(input.tokens, config_.hidden_size),
                low_rank_input_.x.data());
    for (int t = 0; t < input.tokens; ++t) nn::QuantizeToken(ops_, low_rank_input_, t);
  }
  const model::Linear fc1{run.fc1, nullptr};
  const std::array products = {nn::Product{&fc1, low_rank_hidden_.x.data()}};
  multiplier_.Multiply(products, (run.before_norm ? low_rank_input_ : input.hidden).view(),
                       input.tokens);
  low_rank_hidden_.cols = rank;
  for (int t = 0; t < input.tokens; ++t) {
    float* z = low_rank_hidden_.x.data() + nn::Offset(t, rank);
    ops_.gated({.gate = z, .n = rank, .activation = kernels::GateActivation::kRelu, .out = z});
    nn::QuantizeToken(ops_, low_rank_hidden_, t);
  }
  low_rank_view_ = low_rank_hidden_.view();
}

void SparseFfn::PrepareSigns(int layer, const Input& input) {
  const predictor::SignPredictor& sign = *predictors_->layers[static_cast<std::size_t>(layer)].sign;
  const int d = config_.hidden_size, words = kernels::SignInputWords(d, kernels::kSignSlicesMax);
  for (int t = 0; t < input.tokens; ++t) {
    const float* x = input.hidden.x.data() + nn::Offset(t, d);
    if (!sign.columns.empty()) {
      predictor::GatherColumns(x, d, sign.columns, sign_columns_.data());
      x = sign_columns_.data();
    }
    sign_inputs_[t] = kernels::PackSignInput(x, sign.planes.cols, sign.slices,
                                             sign_words_.data() + nn::Offset(t, words));
  }
}

int SparseFfn::Predict(int layer, const FfnPolicy& policy, Range range, int tokens, Scratch& s) {
  const auto n = static_cast<std::size_t>(range.count);
  const auto all = static_cast<std::uint16_t>((1U << tokens) - 1);
  if (!ffn::Predicts(policy.mode)) {
    for (std::size_t i = 0; i < n; ++i) s.ids[i] = range.id(static_cast<int>(i));
    std::fill_n(s.masks.data(), n, all);
    return range.count;
  }
  const predictor::LayerPredictors& p = predictors_->layers[static_cast<std::size_t>(layer)];
  std::fill_n(s.live_masks.data(), n, std::uint16_t{0});
  if (policy.mode == FfnMode::kSign) {
    const std::int32_t shift = static_cast<std::int32_t>(std::lround(policy.shift));
    // Taken from the score, which is small: a threshold may be the largest integer there is.
    const std::int32_t* thresholds = p.sign->thresholds.data() + range.begin;
    for (int t = 0; t < tokens; ++t) {
      ops_.sign_scores({.planes = p.sign->planes,
                        .input = sign_inputs_[t],
                        .row_begin = range.begin,
                        .row_end = range.begin + range.count,
                        .scores = s.scores.data()});
      for (std::size_t i = 0; i < n; ++i)
        s.live_masks[i] |= static_cast<std::uint16_t>((s.scores[i] - shift >= thresholds[i]) << t);
    }
  } else {
    const kernels::PackedMatrix& fc2 = p.low_rank->fc2;
    ops_.gemm(
        {.weights = {fc2.type, range.count, fc2.cols, fc2.panel(range.begin / kernels::kPanelRows)},
         .activations = low_rank_view_,
         .tokens = tokens,
         .out = s.logits.data(),
         .out_stride = kRange,
         .panel_begin = 0,
         .panel_end = kernels::NumPanels(range.count)});
    const float least = p.low_rank->threshold + policy.shift;
    for (int t = 0; t < tokens; ++t) {
      const float* logits = s.logits.data() + t * kRange;
      for (std::size_t i = 0; i < n; ++i)
        s.live_masks[i] |= static_cast<std::uint16_t>((logits[i] >= least) << t);
    }
  }
  int count = 0;
  for (std::size_t i = 0; i < n; ++i) {
    s.ids[static_cast<std::size_t>(count)] = range.id(static_cast<int>(i));
    s.masks[static_cast<std::size_t>(count)] = s.live_masks[i];
    count += s.live_masks[i] != 0 ? 1 : 0;
  }
  return count;
}

std::span<const int> SparseFfn::PredictedBy(int layer, const Input& input,
                                            const FfnPolicy& policy) {
  PreparePredictor(layer, input, policy.mode);
  pool_.Run(NumRanges(layer), [&](int range, int thread) {
    Scratch& s = scratch_[static_cast<std::size_t>(thread)];
    const Range mine = RangeOf(layer, range);
    const int count = Predict(layer, policy, mine, 1, s);
    std::copy_n(s.ids.data(), count, guessed_.data() + mine.begin);
    range_counts_[static_cast<std::size_t>(range)].guessed = count;
  });
  int count = 0;
  for (int range = 0; range < NumRanges(layer); ++range) {
    const int more = range_counts_[static_cast<std::size_t>(range)].guessed;
    std::copy_n(guessed_.data() + range * kRange, more, guessed_.data() + count);
    count += more;
  }
  return std::span(guessed_).first(static_cast<std::size_t>(count));
}

void SparseFfn::ProbePredictor(int layer, const Input& input) {
  const FfnPolicy& policy = policies_[static_cast<std::size_t>(layer)];
  PreparePredictor(layer, input, policy.mode);
  pool_.Run(NumRanges(layer), [&](int range, int thread) {
    Predict(layer, policy, RangeOf(layer, range), input.tokens,
            scratch_[static_cast<std::size_t>(thread)]);
  });
}

}  // namespace thermocline::ffn
