#include "engine/ffn/candidate_finder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "engine/base/index.h"
#include "engine/nn/offset.h"

namespace thermocline::ffn {
namespace {

int LargestRank(const predictor::Predictors* predictors) {
  int rank = 0;
  if (predictors == nullptr) return rank;
  for (const predictor::LayerPredictors& layer : predictors->layers) {
    if (layer.low_rank.has_value()) rank = std::max(rank, layer.low_rank->fc1.rows);
  }
  return rank;
}

}  // namespace

CandidateFinder::Scratch::Scratch(int tokens_max)
    : scores(kRange), logits(base::Area(tokens_max, kRange)), marks(kRange) {}

CandidateFinder::CandidateFinder(const FfnContext& context, const predictor::Predictors* predictors,
                                 int tokens_max, int slots)
    : context_(context),
      predictors_(predictors),
      tokens_max_(tokens_max),
      all_(context.config.intermediate_size) {
  const int d = context_.config.hidden_size;
  for (int i = 0; i < context_.pool.threads(); ++i) scratch_.emplace_back(tokens_max);
  if (predictors_ != nullptr && predictors_->HasSign()) {
    sign_columns_.resize(base::Area(1, d));
    sign_inputs_.resize(base::Area(slots, tokens_max));
    sign_words_.resize(sign_inputs_.size() * kernels::SignInputWords(d, kernels::kSignSlicesMax));
  }
  if (const int rank = LargestRank(predictors_); rank > 0) {
    residual_.Resize(tokens_max, d);
    low_rank_.Resize(tokens_max, rank);
  }
}

std::size_t CandidateFinder::Bytes(const FfnSizes& sizes, int slots) {
  const int tokens = sizes.sparse_tokens(), d = sizes.config.hidden_size;
  const std::size_t scratch = kRange * (sizeof(std::int32_t) + sizeof(std::uint16_t)) +
                              base::Area(tokens, kRange) * sizeof(float) + NeuronList::kBytes;
  std::size_t bytes = sizes.threads * scratch + RangeIds::Bytes(sizes.neurons());
  if (sizes.sign) {
    const int words = kernels::SignInputWords(d, kernels::kSignSlicesMax);
    bytes += base::Area(1, d) * sizeof(float) +
             base::Area(slots * tokens, words) * sizeof(std::uint64_t) +
             base::Area(slots, tokens) * sizeof(kernels::SignInput);
  }
  if (sizes.rank > 0) {
    bytes +=
        nn::ActivationBuffer::Bytes(tokens, d) + nn::ActivationBuffer::Bytes(tokens, sizes.rank);
  }
  return bytes;
}

void CandidateFinder::Prepare(const FfnStep& step) {
  if (step.policy.mode == FfnMode::kLowRank) PrepareLowRank(step);
  if (step.policy.mode == FfnMode::kSign) PrepareSigns(step);
}

void CandidateFinder::PrepareLowRank(const FfnStep& step) {
  const predictor::LowRankRun& run = *Of(step.layer).low_rank;
  const int rank = run.fc1.rows, tokens = step.input.tokens;
  if (run.before_norm) {
    std::copy_n(step.input.residual, nn::Offset(tokens, context_.config.hidden_size),
                residual_.x.data());
    for (int t = 0; t < tokens; ++t) nn::QuantizeToken(context_.ops, residual_, t);
  }
  const model::Linear fc1{run.fc1, nullptr};
  const std::array products = {nn::Product{&fc1, low_rank_.x.data()}};
  context_.multiplier.Multiply(products, (run.before_norm ? residual_ : step.input.hidden).view(),
                               tokens);
  low_rank_.cols = rank;
  for (int t = 0; t < tokens; ++t) {
    float* z = low_rank_.x.data() + nn::Offset(t, rank);
    context_.ops.gated(
        {.gate = z, .n = rank, .activation = kernels::GateActivation::kRelu, .out = z});
    nn::QuantizeToken(context_.ops, low_rank_, t);
  }
}

void CandidateFinder::PrepareSigns(const FfnStep& step) {
  const predictor::SignPredictor& sign = *Of(step.layer).sign;
  const int d = context_.config.hidden_size,
            words = kernels::SignInputWords(d, kernels::kSignSlicesMax);
  for (int t = 0; t < step.input.tokens; ++t) {
    const int place = step.slot * tokens_max_ + t;
    const float* x = step.input.hidden.x.data() + nn::Offset(t, d);
    if (!sign.columns.empty()) {
      predictor::GatherColumns(x, d, sign.columns, sign_columns_.data());
      x = sign_columns_.data();
    }
    sign_inputs_[place] = kernels::PackSignInput(x, sign.planes.cols, sign.slices,
                                                 sign_words_.data() + nn::Offset(place, words));
  }
}

const NeuronList& CandidateFinder::Find(const FfnStep& step, const NeuronRange& range, int thread) {
  Scratch& s = scratch_[thread];
  const std::size_t n = range.count;
  s.found.whole = !Predicts(step.policy.mode);
  if (s.found.whole) {
    const auto all = static_cast<std::uint16_t>((1U << step.input.tokens) - 1);
    for (std::size_t i = 0; i < n; ++i) s.found.ids[i] = range.id(static_cast<int>(i));
    std::fill_n(s.found.masks.data(), n, all);
    s.found.count = range.count;
    return s.found;
  }
  std::fill_n(s.marks.data(), n, std::uint16_t{0});
  step.policy.mode == FfnMode::kSign ? MarkBySigns(step, range, s) : MarkByLogits(step, range, s);
  if (context_.ablation.random_prediction) DrawMarks(step, range, s);
  std::size_t count = 0;
  for (std::size_t i = 0; i < n; ++i) {  // without a branch: few are marked, at random places
    s.found.ids[count] = range.id(static_cast<int>(i));
    s.found.masks[count] = s.marks[i];
    count += s.marks[i] != 0 ? 1 : 0;
  }
  s.found.count = static_cast<int>(count);
  return s.found;
}

void CandidateFinder::MarkBySigns(const FfnStep& step, const NeuronRange& range, Scratch& s) const {
  const predictor::SignPredictor& sign = *Of(step.layer).sign;
  const std::int32_t shift = static_cast<std::int32_t>(std::lround(step.policy.shift));
  // Subtracted from the score, which is small: a threshold may be the largest integer.
  const std::int32_t* thresholds = sign.thresholds.data() + range.begin;
  for (int t = 0; t < step.input.tokens; ++t) {
    context_.ops.sign_scores({.planes = sign.planes,
                              .input = sign_inputs_[step.slot * tokens_max_ + t],
                              .row_begin = range.begin,
                              .row_end = range.begin + range.count,
                              .scores = s.scores.data()});
    for (int i = 0; i < range.count; ++i)
      s.marks[i] |= static_cast<std::uint16_t>((s.scores[i] - shift >= thresholds[i]) << t);
  }
}

void CandidateFinder::MarkByLogits(const FfnStep& step, const NeuronRange& range,
                                   Scratch& s) const {
  const predictor::LowRankRun& run = *Of(step.layer).low_rank;
  const kernels::PackedMatrix& fc2 = run.fc2;
  context_.ops.gemm(
      {.weights = {fc2.type, range.count, fc2.cols, fc2.panel(range.begin / kernels::kPanelRows)},
       .activations = low_rank_.view(),
       .tokens = step.input.tokens,
       .out = s.logits.data(),
       .out_stride = kRange,
       .panel_begin = 0,
       .panel_end = kernels::NumPanels(range.count),
       .prefetch_bytes = context_.multiplier.prefetch_bytes()});
  const float least = run.threshold + step.policy.shift;
  for (int t = 0; t < step.input.tokens; ++t) {
    const float* logits = s.logits.data() + t * kRange;
    for (int i = 0; i < range.count; ++i)
      s.marks[i] |= static_cast<std::uint16_t>((logits[i] >= least) << t);
  }
}

void CandidateFinder::DrawMarks(const FfnStep& step, const NeuronRange& range, Scratch& s) const {
  const auto* input = reinterpret_cast<const std::uint32_t*>(step.input.hidden.x.data());
  std::minstd_rand draw(input[0] ^ (input[1] << 1U) ^ range.begin ^
                        (static_cast<std::uint32_t>(step.layer) << 20U));
  std::shuffle(s.marks.begin(), s.marks.begin() + range.count, draw);
}

std::span<const int> CandidateFinder::FindAll(const FfnStep& step) {
  Prepare(step);
  context_.ForRanges(step.layer, [&](const NeuronRange& range, int thread) {
    all_.Put(range, Find(step, range, thread).span());
  });
  return all_.Join(context_.ranges.NumRanges(step.layer));
}

std::optional<FfnPolicy> CandidateFinder::ReadAheadPolicy(int layer,
                                                          const FfnPolicy& policy) const {
  if (predictors_ == nullptr) return std::nullopt;
  if (Predicts(policy.mode)) return policy;
  if (Of(layer).sign.has_value()) return FfnPolicy{.mode = FfnMode::kSign};
  if (Of(layer).low_rank.has_value()) return FfnPolicy{.mode = FfnMode::kLowRank};
  return std::nullopt;
}

std::int64_t CandidateFinder::PredictorBytes(int layer, FfnMode mode) const {
  if (mode == FfnMode::kSign) return Of(layer).sign->bytes();
  if (mode == FfnMode::kLowRank) return Of(layer).low_rank->bytes();
  return 0;
}

std::int64_t CandidateFinder::PredictorOperations(int layer, FfnMode mode) const {
  if (mode == FfnMode::kSign) return Of(layer).sign->operations();
  if (mode == FfnMode::kLowRank) return Of(layer).low_rank->operations();
  return 0;
}

}  // namespace thermocline::ffn
