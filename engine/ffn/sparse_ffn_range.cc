// A range of neurons: predicted, multiplied as far as they stay alive, and gathered with the
// others.
#include <algorithm>
#include <cmath>

#include "engine/ffn/sparse_ffn.h"
#include "engine/nn/offset.h"

namespace thermocline::ffn {

void SparseFfn::RunRange(int layer, const Input& input, const FfnPolicy& policy, int range,
                         int thread) {
  const model::LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  Scratch& s = scratch_[static_cast<std::size_t>(thread)];
  const Range mine = RangeOf(layer, range);
  const int begin = mine.begin;
  const bool predicts = ffn::Predicts(policy.mode);
  const int predicted = Predict(layer, policy, mine, input.tokens, s);
  RangeCount& counts = range_counts_[static_cast<std::size_t>(range)];
  counts.predicted = predicted;
  counts.live = 0;
  if (predicted == 0) return;
  MultiplyNeurons(predictor::DecidingMatrix(w), input, mine, predicts ? s.ids.data() : mine.ids(),
                  predicted, s.gate.data(), thread);
  const int live = Survive(policy, predicted, input.tokens, s);
  if (gated_ && live > 0)
    MultiplyNeurons(w.up, input, mine, s.live_ids.data(), live, s.up.data(), thread);
  Combine(live, input.tokens, s, neurons_.data() + begin, config_.intermediate_size);
  std::copy_n(s.live_ids.data(), live, neuron_ids_.data() + begin);
  if (predicts) std::copy_n(s.ids.data(), predicted, predicted_ids_.data() + begin);
  counts.live = live;
}

void SparseFfn::MultiplyNeurons(const model::NeuronMatrix& matrix, const Input& input,
                                const Range& range, const int* ids, int count, float* out,
                                int thread) {
  MultiplyInto(matrix, input, range, ids, count, thread, {out, kRange});
}

void SparseFfn::MultiplyInto(const model::NeuronMatrix& matrix, const Input& input,
                             const Range& range, const int* ids, int count, int thread,
                             const Rows& out) {
  const kernels::PackedMatrix& weight = matrix.linear.weight;
  const bool rows = matrix.layout == model::Layout::kRows;
  CHECK(rows || ids == nullptr);
  if (rows) {
    ops_.gemm_rows({.weights = matrix.rows(),
                    .ids = ids,
                    .first = range.begin,
                    .count = count,
                    .activations = input.hidden.view(),
                    .tokens = input.tokens,
                    .out = out.data,
                    .out_stride = out.stride,
                    .scratch = multiplier_.scratch(thread)});
  } else {
    ops_.gemm({.weights = {weight.type, range.count, weight.cols,
                           weight.panel(range.begin / kernels::kPanelRows)},
               .activations = input.hidden.view(),
               .tokens = input.tokens,
               .out = out.data,
               .out_stride = out.stride,
               .panel_begin = 0,
               .panel_end = kernels::NumPanels(range.count)});
  }
  const float* bias = matrix.linear.bias;
  for (int t = 0; bias != nullptr && t < input.tokens; ++t) {
    for (int k = 0; k < count; ++k)
      out.data[nn::Offset(t, out.stride) + k] += bias[ids != nullptr ? ids[k] : range.begin + k];
  }
}

int SparseFfn::Survive(const FfnPolicy& policy, int count, int tokens, Scratch& s) {
  const float least = policy.mode == FfnMode::kThreshold ? policy.shift : 0;
  std::fill_n(s.live_masks.data(), count, std::uint16_t{0});
  for (int t = 0; t < tokens; ++t) {
    const float* act = s.act.data() + t * kRange;
    ops_.gated({.gate = s.gate.data() + t * kRange,
                .n = count,
                .activation = activation_,
                .threshold = static_cast<float>(config_.fatrelu_threshold),
                .out = s.act.data() + t * kRange});
    for (int k = 0; k < count; ++k) {
      const bool live = act[k] != 0 && std::fabs(act[k]) >= least;
      const auto at = static_cast<std::size_t>(k);
      s.live_masks[at] |= static_cast<std::uint16_t>((live ? 1U << t : 0U) & s.masks[at]);
    }
  }
  int kept = 0;
  for (int k = 0; k < count; ++k) {
    const auto from = static_cast<std::size_t>(k), to = static_cast<std::size_t>(kept);
    s.live_ids[to] = s.ids[from];
    s.live_masks[to] = s.live_masks[from];
    for (int t = 0; t < tokens; ++t)
      s.gate[static_cast<std::size_t>(t * kRange + kept)] =
          s.gate[static_cast<std::size_t>(t * kRange + k)];
    kept += s.live_masks[to] != 0 ? 1 : 0;
  }
  return kept;
}

void SparseFfn::Combine(int live, int tokens, Scratch& s, float* h, int h_stride) {
  for (int t = 0; t < tokens; ++t, h += h_stride) {
    ops_.gated({.gate = s.gate.data() + t * kRange,
                .up = gated_ ? s.up.data() + t * kRange : nullptr,
                .n = live,
                .activation = activation_,
                .threshold = static_cast<float>(config_.fatrelu_threshold),
                .out = h});
    for (int k = 0; k < live; ++k) {
      if ((s.live_masks[static_cast<std::size_t>(k)] >> t & 1U) == 0) h[k] = 0;
    }
  }
}

int SparseFfn::Collect(int layer, int tokens) {
  const int f = config_.intermediate_size;
  int count = 0;
  num_predicted_ = 0;
  for (int range = 0; range < NumRanges(layer); ++range) {
    const RangeCount& counts = range_counts_[static_cast<std::size_t>(range)];
    const int begin = range * kRange;
    std::copy_n(predicted_ids_.data() + begin, counts.predicted,
                predicted_ids_.data() + num_predicted_);
    num_predicted_ += counts.predicted;
    for (int k = 0; k < counts.live; ++k) {
      bool any = false;
      for (int t = 0; t < tokens; ++t) {
        const float h = neurons_[static_cast<std::size_t>(nn::Offset(t, f) + begin + k)];
        chosen_[static_cast<std::size_t>(nn::Offset(t, f) + count)] = h;
        any = any || h != 0;
      }
      neuron_ids_[static_cast<std::size_t>(count)] =
          neuron_ids_[static_cast<std::size_t>(begin + k)];
      count += any ? 1 : 0;
    }
  }
  return count;
}

}  // namespace thermocline::ffn
