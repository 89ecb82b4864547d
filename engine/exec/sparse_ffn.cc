#include "engine/exec/sparse_ffn.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace thermocline::exec {
namespace {

// Columns of a work item of the sum over down rows: at most so many that the live rows of a chunk
// and of the next stay in the second-level cache.
constexpr int kColumnsMax = 1024, kColumnsDense = 512;

std::size_t Area(int a, int b) { return static_cast<std::size_t>(a) * static_cast<std::size_t>(b); }
std::ptrdiff_t Offset(int row, int width) { return static_cast<std::ptrdiff_t>(row) * width; }

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
      heads_held_(p.flash == nullptr || p.heads_held),
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
    trace_->Add(exec::Predicts(policy.mode) ? predicted() : live);
  }
  found_ = {neuron_ids_.data(), count, chosen_.data(), config_.intermediate_size, input.tokens > 1};
  return OkStatus();
}

void SparseFfn::FindWide(int layer, const Input& input) {
  const int f = config_.intermediate_size;
  MultiplyWide(layer, input);
  if (tap_ != nullptr) std::copy_n(ffn_.x.data(), Offset(input.tokens, f), tapped_gate_.data());
  const std::span<const int> ids = MemberIds(layer);
  const int count = static_cast<int>(ids.size());
  pool_.Run(input.tokens, [&](int t, int) {
    float* h = ffn_.x.data() + Offset(t, f);
    ops_.gated({.gate = h,
                .up = gated_ ? up_.data() + Offset(t, f) : nullptr,
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
    const std::array products = {Product::Of(first, ffn_.x.data()), Product::Of(w.up, up_.data())};
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
    float* h = ffn_.x.data() + Offset(t, f);
    std::fill_n(h, f, 0.0F);
    for (int k = 0; k < found_.count; ++k)
      h[found_.ids[k]] = chosen_[static_cast<std::size_t>(Offset(t, f) + k)];
  }
  pool_.Run(tokens, [&](int t, int) { QuantizeToken(ops_, ffn_, t); });
  const model::LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  const std::array output = {Product{&w.down, out}};
  multiplier_.Multiply(output, ffn_.view(), tokens);
}

void SparseFfn::SumFound(int layer, int tokens, float* out, bool add_bias) {
  SumDown(layer, tokens, found_, out, nullptr, add_bias);
}

void SparseFfn::ShareSum(int layer, int first, int count, const kernels::SharedSum& part) {
  Chosen chosen = found_;
  chosen.h += Offset(first, chosen.stride);
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

Result<SparseFfn::Neurons> SparseFfn::ActiveNeurons(int layer, const ActivationBuffer& hidden) {
  const auto count = FindNeurons(layer, {hidden, nullptr, 1}, {.mode = FfnMode::kExact});
  if (flash_ != nullptr) {  // a look is no use: the cache forgets it
    if (!count.ok()) flash_->Abandon();
    flash_->EndLayer(layer);
    flash_->EndStep(0);
  }
  if (!count.ok()) return count.status();
  return Neurons{std::span(neuron_ids_).first(static_cast<std::size_t>(*count)), chosen_.data()};
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

void SparseFfn::PreparePredictor(int layer, const Input& input, FfnMode mode) {
  if (mode == FfnMode::kLowRank) PrepareLowRank(layer, input);
  if (mode == FfnMode::kSign) PrepareSigns(layer, input);
}

void SparseFfn::ProbePredictor(int layer, const Input& input) {
  const FfnPolicy& policy = policies_[static_cast<std::size_t>(layer)];
  PreparePredictor(layer, input, policy.mode);
  pool_.Run(NumRanges(layer), [&](int range, int thread) {
    Predict(layer, policy, RangeOf(layer, range), input.tokens,
            scratch_[static_cast<std::size_t>(thread)]);
  });
}

void SparseFfn::PrepareLowRank(int layer, const Input& input) {
  const predictor::LowRankRun& run = *predictors_->layers[static_cast<std::size_t>(layer)].low_rank;
  const int rank = run.fc1.rows;
  if (run.before_norm) {
    std::copy_n(input.residual, Offset(input.tokens, config_.hidden_size),
                low_rank_input_.x.data());
    for (int t = 0; t < input.tokens; ++t) QuantizeToken(ops_, low_rank_input_, t);
  }
  const model::Linear fc1{run.fc1, nullptr};
  const std::array products = {Product{&fc1, low_rank_hidden_.x.data()}};
  multiplier_.Multiply(products, (run.before_norm ? low_rank_input_ : input.hidden).view(),
                       input.tokens);
  low_rank_hidden_.cols = rank;
  for (int t = 0; t < input.tokens; ++t) {
    float* z = low_rank_hidden_.x.data() + Offset(t, rank);
    ops_.gated({.gate = z, .n = rank, .activation = kernels::GateActivation::kRelu, .out = z});
    QuantizeToken(ops_, low_rank_hidden_, t);
  }
  low_rank_view_ = low_rank_hidden_.view();
}

void SparseFfn::PrepareSigns(int layer, const Input& input) {
  const predictor::SignPredictor& sign = *predictors_->layers[static_cast<std::size_t>(layer)].sign;
  const int d = config_.hidden_size, words = kernels::SignInputWords(d, kernels::kSignSlicesMax);
  for (int t = 0; t < input.tokens; ++t) {
    const float* x = input.hidden.x.data() + Offset(t, d);
    if (!sign.columns.empty()) {
      predictor::GatherColumns(x, d, sign.columns, sign_columns_.data());
      x = sign_columns_.data();
    }
    sign_inputs_[t] = kernels::PackSignInput(x, sign.planes.cols, sign.slices,
                                             sign_words_.data() + Offset(t, words));
  }
}

void SparseFfn::RunRange(int layer, const Input& input, const FfnPolicy& policy, int range,
                         int thread) {
  const model::LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  Scratch& s = scratch_[static_cast<std::size_t>(thread)];
  const Range mine = RangeOf(layer, range);
  const int begin = mine.begin;
  const bool predicts = exec::Predicts(policy.mode);
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

int SparseFfn::Predict(int layer, const FfnPolicy& policy, Range range, int tokens, Scratch& s) {
  const auto n = static_cast<std::size_t>(range.count);
  const auto all = static_cast<std::uint16_t>((1U << tokens) - 1);
  if (!exec::Predicts(policy.mode)) {
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
      out.data[Offset(t, out.stride) + k] += bias[ids != nullptr ? ids[k] : range.begin + k];
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
        const float h = neurons_[static_cast<std::size_t>(Offset(t, f) + begin + k)];
        chosen_[static_cast<std::size_t>(Offset(t, f) + count)] = h;
        any = any || h != 0;
      }
      neuron_ids_[static_cast<std::size_t>(count)] =
          neuron_ids_[static_cast<std::size_t>(begin + k)];
      count += any ? 1 : 0;
    }
  }
  return count;
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
      ops_.add(out + Offset(t, d) + begin, w.down.bias + begin, end - begin);
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
  if (exec::Predicts(policy.mode)) {
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

}  // namespace thermocline::exec
