// The feed-forward network where neurons may be on flash: what is missing is read while what is
// there is multiplied. A neuron's products do not depend on when it came, and the sum over down
// rows is taken when all are there, so the bits are those of memory.
//
// Reads of a layer, and what the threads do meanwhile:
//   predict (or, with deciding rows held, multiply the gates) -> what is needed -> reads start
//   guess what the next layer will need   | reads of this layer
//   multiply the neurons in memory        | reads of this layer, then the guessed ones
//   wait; multiply those that came late   | guessed ones
//   sum the down rows, attention, ...     | guessed ones
#include <algorithm>

#include "engine/ffn/sparse_ffn.h"
#include "engine/nn/offset.h"

namespace thermocline::ffn {

bool SparseFfn::NeedsAll(int layer, int tokens, bool lossless) const {
  if (layer >= config_.num_hidden_layers) return false;
  const FfnMode mode = PolicyFor(layer, lossless).mode;
  return mode == FfnMode::kDense || tokens > kSparseTokensMax || tap_ != nullptr ||
         (!deciding_held_ && !ffn::Predicts(mode));
}

Status SparseFfn::ReadAll(int layer, int tokens) {
  flash_->RequestAll(layer, tokens <= kSparseTokensMax);
  RETURN_IF_ERROR(flash_->Await());
  if (next_needs_all_) flash_->ReadAllAhead(layer + 1);
  return OkStatus();
}

Status SparseFfn::FindOnFlash(int layer, const Input& input, const FfnPolicy& policy) {
  if (!deciding_held_ && !ffn::Predicts(policy.mode)) {  // all of them decide
    RETURN_IF_ERROR(ReadAll(layer, input.tokens));
    pool_.Run(NumRanges(layer),
              [&](int range, int thread) { RunRange(layer, input, policy, range, thread); });
    return OkStatus();
  }
  pool_.Run(NumRanges(layer),
            [&](int range, int thread) { FindCandidates(layer, input, policy, range, thread); });
  int needed = 0;
  for (int range = 0; range < NumRanges(layer); ++range) {
    if (policy.resident_only) DropAbsent(layer, range);
    const int begin = range * kRange, count = range_counts_[static_cast<std::size_t>(range)].live;
    for (int k = 0; k < count; ++k) {
      const int id = candidates_[static_cast<std::size_t>(begin + k)];
      late_[static_cast<std::size_t>(id)] = flash_->Has(layer, id) ? 0 : 1;
      neuron_ids_[static_cast<std::size_t>(needed)] = id;
      needed_[static_cast<std::size_t>(needed++)] = masks_[static_cast<std::size_t>(id)];
    }
  }
  const auto n = static_cast<std::size_t>(needed);
  flash_->Request(layer, std::span(neuron_ids_).first(n), std::span(needed_).first(n));
  const auto compute = [&](bool late) {
    pool_.Run(NumRanges(layer), [&](int range, int thread) {
      ComputeCandidates(layer, input, policy, range, late, thread);
    });
  };
  const bool some_late = flash_->reading();
  if (input.tokens == 1) ReadNextAhead(layer, input);
  compute(false);
  flash_->Poke();
  if (some_late) {
    RETURN_IF_ERROR(flash_->Await());
    compute(true);
  }
  for (int range = 0; range < NumRanges(layer); ++range) CloseRange(range, input.tokens);
  return OkStatus();
}

void SparseFfn::DropAbsent(int layer, int range) {
  int& live = range_counts_[static_cast<std::size_t>(range)].live;
  int* const ids = candidates_.data() + range * kRange;
  live = static_cast<int>(
      std::remove_if(ids, ids + live, [&](int id) { return !flash_->Has(layer, id); }) - ids);
}

void SparseFfn::FindCandidates(int layer, const Input& input, const FfnPolicy& policy, int range,
                               int thread) {
  Scratch& s = scratch_[static_cast<std::size_t>(thread)];
  const int f = config_.intermediate_size, begin = range * kRange;
  const Range mine = RangeOf(layer, range);
  const bool predicts = ffn::Predicts(policy.mode);
  RangeCount& counts = range_counts_[static_cast<std::size_t>(range)];
  counts.predicted = Predict(layer, policy, mine, input.tokens, s);
  if (predicts) std::copy_n(s.ids.data(), counts.predicted, predicted_ids_.data() + begin);
  const int* ids = s.ids.data();
  const std::uint16_t* masks = s.masks.data();
  counts.live = counts.predicted;
  if (deciding_held_ && counts.predicted > 0) {
    MultiplyNeurons(predictor::DecidingMatrix(weights_.layers[static_cast<std::size_t>(layer)]),
                    input, mine, predicts ? s.ids.data() : mine.ids(), counts.predicted,
                    s.gate.data(), thread);
    counts.live = Survive(policy, counts.predicted, input.tokens, s);
    ids = s.live_ids.data();
    masks = s.live_masks.data();
  }
  for (int k = 0; k < counts.live; ++k) {
    candidates_[static_cast<std::size_t>(begin + k)] = ids[k];
    masks_[static_cast<std::size_t>(ids[k])] = masks[k];
    for (int t = 0; deciding_held_ && t < input.tokens; ++t)
      neurons_[static_cast<std::size_t>(nn::Offset(t, f) + ids[k])] =
          s.gate[static_cast<std::size_t>(t * kRange + k)];
  }
}

void SparseFfn::ComputeCandidates(int layer, const Input& input, const FfnPolicy& policy, int range,
                                  bool late, int thread) {
  const model::LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  Scratch& s = scratch_[static_cast<std::size_t>(thread)];
  const int f = config_.intermediate_size, begin = range * kRange, tokens = input.tokens;
  const Range mine = RangeOf(layer, range);
  int count = 0;
  for (int k = 0; k < range_counts_[static_cast<std::size_t>(range)].live; ++k) {
    const int id = candidates_[static_cast<std::size_t>(begin + k)];
    if ((late_[static_cast<std::size_t>(id)] != 0) != late) continue;
    s.ids[static_cast<std::size_t>(count)] = id;
    s.masks[static_cast<std::size_t>(count++)] = masks_[static_cast<std::size_t>(id)];
  }
  if (count == 0) return;
  int live = count;
  if (deciding_held_) {
    std::copy_n(s.ids.data(), count, s.live_ids.data());
    std::copy_n(s.masks.data(), count, s.live_masks.data());
    for (int t = 0; t < tokens; ++t) {
      for (int k = 0; k < count; ++k)
        s.gate[static_cast<std::size_t>(t * kRange + k)] = neurons_[static_cast<std::size_t>(
            nn::Offset(t, f) + s.ids[static_cast<std::size_t>(k)])];
    }
  } else {
    MultiplyNeurons(predictor::DecidingMatrix(w), input, mine, s.ids.data(), count, s.gate.data(),
                    thread);
    live = Survive(policy, count, tokens, s);
    for (int k = 0; k < count; ++k)
      masks_[static_cast<std::size_t>(s.ids[static_cast<std::size_t>(k)])] = 0;
  }
  if (gated_ && live > 0)
    MultiplyNeurons(w.up, input, mine, s.live_ids.data(), live, s.up.data(), thread);
  Combine(live, tokens, s, s.act.data(), kRange);
  for (int k = 0; k < live; ++k) {
    const auto id = static_cast<std::size_t>(s.live_ids[static_cast<std::size_t>(k)]);
    masks_[id] = s.live_masks[static_cast<std::size_t>(k)];
    for (int t = 0; t < tokens; ++t)
      neurons_[static_cast<std::size_t>(nn::Offset(t, f)) + id] =
          s.act[static_cast<std::size_t>(t * kRange + k)];
  }
}

void SparseFfn::CloseRange(int range, int tokens) {
  const int f = config_.intermediate_size, begin = range * kRange;
  RangeCount& counts = range_counts_[static_cast<std::size_t>(range)];
  int live = 0;
  for (int k = 0; k < counts.live; ++k) {
    const int id = candidates_[static_cast<std::size_t>(begin + k)];
    if (masks_[static_cast<std::size_t>(id)] == 0) continue;
    // Never past the neuron it comes from: begin + live <= id.
    neuron_ids_[static_cast<std::size_t>(begin + live)] = id;
    for (int t = 0; t < tokens; ++t)
      neurons_[static_cast<std::size_t>(nn::Offset(t, f) + begin + live)] =
          neurons_[static_cast<std::size_t>(nn::Offset(t, f) + id)];
    ++live;
  }
  counts.live = live;
}

// A guess costs a prediction: it must have something to read, and mostly be right.
bool SparseFfn::GuessesPay() {
  constexpr int kJudgedAfter = 256, kSkipped = 4096;  // guesses
  constexpr std::int64_t kFreshMin = 4;               // neurons a layer that had to be read
  const std::int64_t fresh = flash_->fresh_uses();
  fresh_mean_ += (static_cast<float>(fresh - fresh_uses_) - fresh_mean_) / 32;
  fresh_uses_ = fresh;
  if (fresh_mean_ < kFreshMin) return false;
  if (guesses_skipped_ > 0) return --guesses_skipped_ == 0;
  if (++guesses_ < kJudgedAfter) return true;
  const FlashCounters c = flash_->counters();
  const std::int64_t useful = c.ahead_useful_bytes - guessed_useful_,
                     wasted = c.ahead_wasted_bytes - guessed_wasted_;
  guesses_ = 0;
  guessed_useful_ = c.ahead_useful_bytes;
  guessed_wasted_ = c.ahead_wasted_bytes;
  if (wasted > useful) guesses_skipped_ = kSkipped;
  return wasted <= useful;
}

void SparseFfn::ReadNextAhead(int layer, const Input& input) {
  const int next = layer + 1;
  if (!read_ahead_ || next >= config_.num_hidden_layers || predictors_ == nullptr || !GuessesPay())
    return;
  const predictor::LayerPredictors& p = predictors_->layers[static_cast<std::size_t>(next)];
  FfnPolicy policy = policies_[static_cast<std::size_t>(next)];
  if (!ffn::Predicts(policy.mode)) {
    if (!p.sign.has_value() && !p.low_rank.has_value()) return;
    policy = {.mode = p.sign.has_value() ? FfnMode::kSign : FfnMode::kLowRank};
  }
  flash_->ReadAhead(next, PredictedBy(next, input, policy));
}

}  // namespace thermocline::ffn
