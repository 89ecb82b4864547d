#include "engine/ffn/sparse_ffn.h"

#include <algorithm>

#include "engine/nn/offset.h"

namespace thermocline::ffn {
namespace {

// Columns of a work item of the sum over down rows: at most so many that the live rows of a chunk
// and of the next stay in the second-level cache.
constexpr int kColumnsMax = 1024, kColumnsDense = 512;

std::size_t Area(int a, int b) { return static_cast<std::size_t>(a) * static_cast<std::size_t>(b); }

int LargestRank(const predictor::Predictors* predictors) {
  int rank = 0;
  if (predictors == nullptr) return rank;
  for (const predictor::LayerPredictors& layer : predictors->layers) {
    if (layer.low_rank.has_value()) rank = std::max(rank, layer.low_rank->fc1.rows);
  }
  return rank;
}

int ColumnsPerItem(int cols, int threads, bool dense) {
  const int even = cols / (2 * threads) / kernels::kSumColumns * kernels::kSumColumns;
  return std::clamp(even, kernels::kSumColumns, dense ? kColumnsDense : kColumnsMax);
}

}  // namespace

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

SparseFfn::SparseFfn(const Params& p)
    : config_(p.config),
      weights_(p.weights),
      predictors_(p.predictors),
      ops_(p.ops),
      pool_(p.pool),
      multiplier_(p.multiplier),
      gated_(p.config.architecture->gated),
      activation_(GateOf(p.config.hidden_act)),
      members_(p.members),
      policies_(p.weights.layers.size()),
      counters_(p.weights.layers.size()),
      flash_(p.flash),
      deciding_held_(p.flash == nullptr || p.deciding_held),
      read_ahead_(p.read_ahead) {
  const int f = config_.intermediate_size, d = config_.hidden_size;
  const int narrow = std::min(p.tokens_max, kSparseTokensMax);
  ffn_.Resize(p.tokens_max, f);
  up_.resize(Area(p.tokens_max, gated_ ? f : 0));
  for (int i = 0; i < f; ++i) all_ids_.push_back(i);
  neuron_ids_.resize(all_ids_.size());
  predicted_ids_.resize(all_ids_.size());
  guessed_.resize(all_ids_.size());
  neurons_.resize(Area(narrow, f));
  chosen_.resize(neurons_.size());
  range_counts_.resize(static_cast<std::size_t>((f + kRange - 1) / kRange));
  scratch_.resize(static_cast<std::size_t>(p.pool.threads()));
  for (Scratch& s : scratch_) {
    s.scores.resize(kRange);
    for (std::vector<float>* each : {&s.logits, &s.gate, &s.act, &s.up})
      each->resize(Area(narrow, kRange));
    s.ids.resize(kRange);
    s.live_ids.resize(kRange);
    s.masks.resize(kRange);
    s.live_masks.resize(kRange);
    s.sum.resize(kernels::SumScratchBytes(std::min(d, kColumnsMax + kernels::kSumColumns)));
  }
  if (flash_ != nullptr) {
    candidates_.resize(all_ids_.size());
    masks_.resize(all_ids_.size());
    needed_.resize(all_ids_.size());
    late_.resize(all_ids_.size());
  }
  if (const int rank = LargestRank(predictors_); rank > 0) {
    low_rank_input_.Resize(narrow, d);
    low_rank_hidden_.Resize(narrow, rank);
  }
  if (predictors_ != nullptr && predictors_->HasSign()) {
    sign_columns_.resize(Area(1, d));
    sign_words_.resize(Area(narrow, kernels::SignInputWords(d, kernels::kSignSlicesMax)));
  }
}

void SparseFfn::SetTap(FfnTap* tap) {
  tap_ = tap;
  tapped_gate_.resize(tap == nullptr ? 0 : ffn_.x.size());
}

int SparseFfn::NumMembers(int layer) const {
  if (members_ == nullptr) return config_.intermediate_size;
  return static_cast<int>((*members_)[static_cast<std::size_t>(layer)].size());
}

SparseFfn::Range SparseFfn::RangeOf(int layer, int range) const {
  const int begin = range * kRange;
  const int* members =
      members_ != nullptr ? (*members_)[static_cast<std::size_t>(layer)].data() : nullptr;
  return {begin, std::min(kRange, NumMembers(layer) - begin), members};
}

std::span<const int> SparseFfn::MemberIds(int layer) const {
  return members_ != nullptr ? std::span((*members_)[static_cast<std::size_t>(layer)])
                             : std::span(all_ids_);
}

FfnPolicy SparseFfn::PolicyFor(int layer, bool lossless) const {
  FfnPolicy policy = policies_[static_cast<std::size_t>(layer)];
  const bool zeros = model::HasTrueZeros(config_.hidden_act);
  if (lossless && !IsLossless(policy.mode)) policy.mode = zeros ? FfnMode::kExact : FfnMode::kDense;
  return policy;
}

Status SparseFfn::Run(int layer, const Input& input, bool lossless, float* out) {
  const FfnPolicy policy = PolicyFor(layer, lossless);
  RETURN_IF_ERROR(Find(layer, input, policy, lossless));
  if (weights_.layers[static_cast<std::size_t>(layer)].down_rows.rows > 0) {
    SumFound(layer, input.tokens, out, true);
  } else {
    MultiplyDown(layer, input.tokens, out);
  }
  EndLayer(layer);
  return OkStatus();
}

bool SparseFfn::IsWide(const FfnPolicy& policy, int tokens) const {
  return policy.mode == FfnMode::kDense || tokens > kSparseTokensMax || tap_ != nullptr;
}

Status SparseFfn::Find(int layer, const Input& input, const FfnPolicy& policy, bool lossless) {
  num_predicted_ = 0;
  next_needs_all_ = flash_ != nullptr && NeedsAll(layer + 1, input.tokens, lossless);
  if (IsWide(policy, input.tokens)) {
    if (flash_ != nullptr) RETURN_IF_ERROR(ReadAll(layer, input.tokens));
    FindWide(layer, input);
    return OkStatus();
  }
  ASSIGN_OR_RETURN(const int count, FindNeurons(layer, input, policy));
  if (input.tokens == 1 && counting_) Count(layer, policy, count);
  if (trace_ != nullptr && input.tokens == 1 && counting_) {
    const std::span live(neuron_ids_.data(), static_cast<std::size_t>(count));
    trace_->Add(ffn::Predicts(policy.mode) ? predicted() : live);
  }
  found_ = {neuron_ids_.data(), count, chosen_.data(), config_.intermediate_size, input.tokens > 1};
  return OkStatus();
}

void SparseFfn::SumFound(int layer, int tokens, float* out, bool add_bias) {
  SumDown(layer, tokens, found_, out, nullptr, add_bias);
}

void SparseFfn::ShareSum(int layer, int first, int count, const kernels::SharedSum& part) {
  Chosen chosen = found_;
  chosen.h += nn::Offset(first, chosen.stride);
  SumDown(layer, count, chosen, nullptr, &part, false);
}

Result<int> SparseFfn::FindNeurons(int layer, const Input& input, const FfnPolicy& policy) {
  PreparePredictor(layer, input, policy.mode);
  if (flash_ != nullptr) {
    RETURN_IF_ERROR(FindOnFlash(layer, input, policy));
  } else {
    pool_.Run(NumRanges(layer),
              [&](int range, int thread) { RunRange(layer, input, policy, range, thread); });
  }
  return Collect(layer, input.tokens);
}

Result<SparseFfn::Neurons> SparseFfn::ActiveNeurons(int layer, const nn::ActivationBuffer& hidden) {
  const auto count = FindNeurons(layer, {hidden, nullptr, 1}, {.mode = FfnMode::kExact});
  if (flash_ != nullptr) {  // a look is no use: the cache forgets it
    if (!count.ok()) flash_->Abandon();
    flash_->EndLayer(layer);
    flash_->EndStep(0);
  }
  if (!count.ok()) return count.status();
  return Neurons{std::span(neuron_ids_).first(static_cast<std::size_t>(*count)), chosen_.data()};
}

void SparseFfn::SumDown(int layer, int tokens, const Chosen& chosen, float* out,
                        const kernels::SharedSum* shared, bool add_bias) {
  const model::LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  const int d = config_.hidden_size,
            columns = ColumnsPerItem(d, pool_.threads(),
                                     3 * chosen.count > weights_.layers[0].down_rows.rows);
  pool_.Run((d + columns - 1) / columns, [&](int item, int thread) {
    const int begin = item * columns, end = std::min(d, begin + columns);
    ops_.sum_rows({.weights = w.down_rows,
                   .ids = chosen.ids,
                   .count = chosen.count,
                   .h = chosen.h,
                   .h_stride = chosen.stride,
                   .tokens = tokens,
                   .skip_zeros = chosen.skip_zeros,
                   .col_begin = begin,
                   .col_end = end,
                   .out = out,
                   .out_stride = d,
                   .scratch = scratch_[static_cast<std::size_t>(thread)].sum.data(),
                   .shared = shared});
    if (w.down.bias == nullptr || !add_bias) return;
    for (int t = 0; t < tokens; ++t)
      ops_.add(out + nn::Offset(t, d) + begin, w.down.bias + begin, end - begin);
  });
}

std::int64_t SparseFfn::dense_bytes(int layer) const {
  const model::LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  return static_cast<std::int64_t>(w.gate.linear.weight.bytes() + w.up.linear.weight.bytes() +
                                   w.down.weight.bytes() + w.down_rows.bytes());
}

void SparseFfn::Count(int layer, const FfnPolicy& policy, int down) {
  const model::LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  const std::int64_t f = config_.intermediate_size;
  std::int64_t predicted = NumMembers(layer), live = predicted, predictor_bytes = 0;
  if (policy.mode != FfnMode::kDense) {
    predicted = live = 0;
    for (const RangeCount& range :
         std::span(range_counts_).first(static_cast<std::size_t>(NumRanges(layer)))) {
      predicted += range.predicted;
      live += range.live;
    }
  }
  if (ffn::Predicts(policy.mode)) {
    const predictor::LayerPredictors& p = predictors_->layers[static_cast<std::size_t>(layer)];
    predictor_bytes = static_cast<std::int64_t>(
        policy.mode == FfnMode::kSign ? p.sign->bytes() : p.low_rank->bytes());
  }
  const auto row_bytes = [](const kernels::PackedMatrix& m) {
    return static_cast<std::int64_t>(kernels::RowBytes(m.type, m.cols));
  };
  FfnCounters& c = counters_[static_cast<std::size_t>(layer)];
  const std::int64_t down_bytes =
      w.down_rows.rows > 0
          ? down * static_cast<std::int64_t>(kernels::RowBytes(w.down_rows.type, w.down_rows.cols))
          : static_cast<std::int64_t>(w.down.weight.bytes());
  ++c.tokens;
  c.gate_rows += predicted;
  c.up_rows += gated_ ? live : 0;
  c.down_rows += w.down_rows.rows > 0 ? down : f;
  c.predictor_bytes += predictor_bytes;
  c.bytes += predictor_bytes + predicted * row_bytes(predictor::DecidingMatrix(w).linear.weight) +
             (gated_ ? live * row_bytes(w.up.linear.weight) : 0) + down_bytes;
}

}  // namespace thermocline::ffn
