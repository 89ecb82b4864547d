#include "engine/ffn/range_computer.h"

#include <algorithm>
#include <cmath>

#include "engine/base/index.h"
#include "engine/ffn/row_product.h"
#include "engine/nn/offset.h"
#include "engine/predictor/predictors.h"

namespace thermocline::ffn {

RangeComputer::Scratch::Scratch(int tokens_max)
    : live(tokens_max), act(live.gates.size()), up(act.size()), h(act.size()) {}

RangeComputer::RangeComputer(const FfnContext& context, int tokens_max) : context_(context) {
  for (int i = 0; i < context_.pool.threads(); ++i) scratch_.emplace_back(tokens_max);
}

std::size_t RangeComputer::Bytes(const FfnSizes& sizes) {
  const std::size_t floats = base::Area(3 * sizes.sparse_tokens(), kRange);
  return sizes.threads * (GatedNeurons::Bytes(sizes.sparse_tokens()) + floats * sizeof(float));
}

const GatedNeurons& RangeComputer::Decide(const FfnStep& step, const NeuronRange& range,
                                          const NeuronList& candidates, int thread) {
  Scratch& s = scratch_[thread];
  s.live.list.count = 0;
  if (candidates.count == 0) return s.live;
  if (step.gates != nullptr) {
    CopyGates(step, candidates, s);
    KeepActive(step, candidates, s);
    return s.live;
  }
  Multiply(context_,
           {.matrix = predictor::DecidingMatrix(context_.layer(step.layer)),
            .hidden = step.input.hidden,
            .tokens = step.input.tokens,
            .range = range,
            .ids = candidates.whole ? range.ids() : candidates.ids.data(),
            .count = candidates.count,
            .out = s.live.gates.data(),
            .out_stride = kRange},
           thread);
  KeepActive(step, candidates, s);
  return s.live;
}

void RangeComputer::CopyGates(const FfnStep& step, const NeuronList& candidates, Scratch& s) const {
  for (int t = 0; t < step.input.tokens; ++t) {
    const float* from = step.gates + nn::Offset(t, context_.config.intermediate_size);
    for (int k = 0; k < candidates.count; ++k)
      s.live.gates[nn::Offset(t, kRange) + k] = from[candidates.ids[k]];
  }
}

void RangeComputer::KeepActive(const FfnStep& step, const NeuronList& candidates,
                               Scratch& s) const {
  // Without actual sparsity all predicted neurons are computed, whatever their gate.
  const bool all = Predicts(step.policy.mode) && !context_.ablation.actual_sparsity;
  const float least = step.policy.mode == FfnMode::kThreshold ? step.policy.shift : 0;
  const std::size_t count = candidates.count;
  const int tokens = step.input.tokens;
  NeuronList& live = s.live.list;
  std::fill_n(live.masks.data(), count, std::uint16_t{0});
  for (int t = 0; t < tokens; ++t) {
    float* act = s.act.data() + t * kRange;
    context_.Activate(
        step.layer, {.gate = s.live.gates.data() + t * kRange, .n = candidates.count, .out = act});
    for (std::size_t k = 0; k < count; ++k) {
      const bool lives = all || (act[k] != 0 && std::fabs(act[k]) >= least);
      live.masks[k] |= static_cast<std::uint16_t>((lives ? 1U << t : 0U) & candidates.masks[k]);
    }
  }
  std::size_t kept = 0;
  for (std::size_t k = 0; k < count; ++k) {
    live.ids[kept] = candidates.ids[k];
    live.masks[kept] = live.masks[k];
    for (int t = 0; t < tokens; ++t) {
      float* gates = s.live.gates.data() + t * kRange;
      gates[kept] = gates[k];
    }
    kept += live.masks[kept] != 0 ? 1 : 0;
  }
  live.count = static_cast<int>(kept);
}

const float* RangeComputer::Finish(const FfnStep& step, const NeuronRange& range,
                                   const GatedNeurons& live, int thread) {
  Scratch& s = scratch_[thread];
  const int count = live.list.count;
  if (count == 0) return s.h.data();
  if (context_.gated()) {
    Multiply(context_,
             {.matrix = context_.layer(step.layer).up,
              .hidden = step.input.hidden,
              .tokens = step.input.tokens,
              .range = range,
              .ids = live.list.ids.data(),
              .count = count,
              .out = s.up.data(),
              .out_stride = kRange},
             thread);
  }
  for (int t = 0; t < step.input.tokens; ++t) {
    float* h = s.h.data() + t * kRange;
    context_.Activate(step.layer, {.gate = live.gates.data() + t * kRange,
                                   .up = context_.gated() ? s.up.data() + t * kRange : nullptr,
                                   .n = count,
                                   .out = h});
    for (int k = 0; k < count; ++k) {
      if ((live.list.masks[k] >> t & 1U) == 0) h[k] = 0;
    }
  }
  return s.h.data();
}

}  // namespace thermocline::ffn
