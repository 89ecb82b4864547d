#include "engine/ffn/sparse_ffn.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "engine/base/index.h"
#include "engine/ffn/gate_cut.h"
#include "engine/nn/offset.h"
#include "engine/predictor/predictors.h"

namespace thermocline::ffn {
namespace {

int SparseTokens(int tokens_max) { return std::min(tokens_max, kSparseTokensMax); }

}  // namespace

SparseFfn::SparseFfn(const Params& p)
    : context_{p.config,  p.weights,    p.ops,
               p.pool,    p.multiplier, NeuronRanges(p.config.intermediate_size, p.members),
               p.ablation},
      finder_(context_, p.predictors, SparseTokens(p.tokens_max)),
      computer_(context_, SparseTokens(p.tokens_max)),
      live_(p.config.intermediate_size, SparseTokens(p.tokens_max)),
      all_(context_, p.tokens_max),
      down_(context_),
      predicted_(p.config.intermediate_size),
      policies_(p.weights.layers.size()),
      counters_(p.weights.layers.size()) {
  h_.Resize(p.tokens_max, p.config.intermediate_size);
  if (p.config.experts.any()) {
    experts_.emplace(context_, p.tokens_max);
    if (p.flash != nullptr) experts_->SetFlash(p.flash, p.read_ahead);
    return;
  }
  const int ranges = (p.config.intermediate_size + kRange - 1) / kRange;
  for (int i = 0; !p.ablation.fusion && i < ranges; ++i)
    passed_.emplace_back(SparseTokens(p.tokens_max));
  if (p.flash == nullptr) return;
  flash_.emplace(FlashNeurons::Params{.context = context_,
                                      .store = *p.flash,
                                      .deciding_held = p.deciding_held,
                                      .read_ahead = p.read_ahead,
                                      .tokens_max = SparseTokens(p.tokens_max)});
}

std::size_t SparseFfn::Bytes(const FfnSizes& sizes) {
  const int layers = sizes.config.num_hidden_layers;
  return CandidateFinder::Bytes(sizes) + RangeComputer::Bytes(sizes) +
         LiveNeurons::Bytes(sizes.neurons(), sizes.sparse_tokens()) + AllNeurons::Bytes(sizes) +
         DownSum::Bytes(sizes) + ExpertFfn::Bytes(sizes) +
         (sizes.flash && !sizes.config.experts.any() ? FlashNeurons::Bytes(sizes) : 0) +
         nn::ActivationBuffer::Bytes(sizes.tokens_max, sizes.neurons()) +
         RangeIds::Bytes(sizes.neurons()) +
         base::Area(layers, 1) * (sizeof(FfnPolicy) + sizeof(FfnCounters));
}

FfnPolicy SparseFfn::PolicyFor(int layer, bool lossless) const {
  FfnPolicy out = policy(layer);
  // The layers that mode inputs computes by whole products have no rows to skip.
  const bool zeros = context_.config.HasZeros(layer) && out.mode != FfnMode::kInputs;
  if (lossless && !IsLossless(out.mode)) out.mode = zeros ? FfnMode::kExact : FfnMode::kDense;
  return out;
}

Status SparseFfn::Run(int layer, const Input& input, bool lossless, float* out) {
  if (context_.layer(layer).experts.any()) {
    RETURN_IF_ERROR(experts_->Run({layer, input, PolicyFor(layer, lossless)}, out));
    if (tap_ != nullptr) tap_->OnExperts(layer, experts_->chosen(), input.tokens);
    if (!input.decoded || !counting_) return OkStatus();
    experts_->Count(layer, input.tokens, counters_[layer]);
    if (trace_ != nullptr && input.tokens == 1) trace_->Add(experts_->chosen_ids());
    return OkStatus();
  }
  RETURN_IF_ERROR(Find(layer, input, PolicyFor(layer, lossless), lossless));
  if (context_.layer(layer).ffn_sub_norm.weight != nullptr) NormFound(layer, input.tokens);
  if (context_.layer(layer).down_rows.rows > 0) {
    SumFound(layer, input.tokens, out, true);
    // Requests with adapters compute all neurons, but for drafts by the model itself.
    if (base::IntSize(found_.ids) == context_.config.NetworkSizeOf(layer))
      context_.multiplier.Update({&context_.layer(layer).down, out},
                                 {.x = found_.h, .cols = found_.stride}, input.tokens);
  } else {
    down_.MultiplyColumns(layer, input.tokens, found_, h_, out);
  }
  EndLayer(layer);
  return OkStatus();
}

void SparseFfn::RunBeside(int layer, const Input& input, float* out) {
  found_ = all_.Compute(layer, input, h_);
  if (context_.layer(layer).down_rows.rows > 0) {
    SumFound(layer, input.tokens, out, true);
  } else {
    down_.MultiplyColumns(layer, input.tokens, found_, h_, out);
  }
}

Status SparseFfn::Find(int layer, const Input& input, const FfnPolicy& policy, bool lossless) {
  const FfnStep step{layer, input, policy};
  const bool all = ComputesAll(policy.mode, input.tokens);
  const bool next_too = ReadsAll(layer + 1, input.tokens, lossless);
  if (all) {
    predicted_.Clear();
    if (flash_.has_value()) RETURN_IF_ERROR(flash_->ReadAll(layer, input.tokens, next_too));
    found_ = all_.Compute(layer, input, h_);
  } else {
    RETURN_IF_ERROR(FindLive(step, next_too));
  }
  if (input.decoded && counting_) Count(step, all);
  return OkStatus();
}

// The sum of squares runs over the found neurons, since the others are zero. By neuron in eight
// chains, so that the bits are the same with or without zeros among them.
void SparseFfn::NormFound(int layer, int tokens) {
  constexpr int kChains = 8;
  const float* weight = context_.layer(layer).ffn_sub_norm.weight;
  const std::span<const int> ids = found_.ids;
  context_.pool.Run(tokens, [&](int t, int) {
    float* h = found_.h + nn::Offset(t, found_.stride);
    double chains[kChains] = {};
    for (std::size_t k = 0; k < ids.size(); ++k) {
      const double value{h[k]};
      chains[ids[k] % kChains] += value * value;
    }
    const double sum = std::accumulate(chains, chains + kChains, 0.0);
    const double mean = sum / context_.config.intermediate_size;
    const auto scale = static_cast<float>(1 / std::sqrt(mean + context_.config.norm_eps));
    for (std::size_t k = 0; k < ids.size(); ++k) h[k] = h[k] * scale * weight[ids[k]];
  });
}

void SparseFfn::SumShared(int layer, int first, int count, const kernels::SharedSum& part) {
  FoundNeurons found = found_;
  found.h += nn::Offset(first, found.stride);
  down_.SumSharedRows(layer, count, found, part);
}

void SparseFfn::EndLayer(int layer) {
  if (flash_.has_value()) flash_->store().EndLayer(layer);
}

bool SparseFfn::ComputesAll(FfnMode mode, int tokens) const {
  return mode == FfnMode::kDense || tokens > kSparseTokensMax || all_.tapped();
}

bool SparseFfn::ReadsAll(int layer, int tokens, bool lossless) const {
  if (!flash_.has_value() || layer >= context_.config.num_hidden_layers) return false;
  const FfnMode mode = PolicyFor(layer, lossless).mode;
  return ComputesAll(mode, tokens) || flash_->NeedsAll(mode);
}

void SparseFfn::CutAllGates(FfnStep& step) {
  const double cut = context_.config.altup.CutOf(step.layer);
  if (cut <= 0) return;
  CHECK(context_.ranges.all());
  const int f = context_.config.intermediate_size;
  const std::array products = {
      nn::Product::Of(predictor::DecidingMatrix(context_.layer(step.layer)), h_.x.data())};
  context_.multiplier.Multiply(products, step.input.hidden.view(), step.input.tokens);
  context_.pool.Run(step.input.tokens,
                    [&](int t, int) { CutGates(cut, h_.x.data() + nn::Offset(t, f), f); });
  step.gates = h_.x.data();
}

Status SparseFfn::FindLive(FfnStep step, bool next_too) {
  const int layer = step.layer, tokens = step.input.tokens;
  predicted_.Clear();
  finder_.Prepare(step);
  if (flash_.has_value() && !flash_->NeedsAll(step.policy.mode)) {
    CutAllGates(step);
    RETURN_IF_ERROR(FindOnFlash(step));
  } else {
    if (flash_.has_value()) RETURN_IF_ERROR(flash_->ReadAll(layer, tokens, next_too));
    CutAllGates(step);
    if (!passed_.empty()) {
      ComputeInPasses(step);
    } else {
      context_.ForRanges(
          layer, [&](const NeuronRange& range, int thread) { ComputeRange(step, range, thread); });
    }
  }
  const int ranges = context_.ranges.NumRanges(layer);
  if (Predicts(step.policy.mode)) predicted_.Join(ranges);
  // Neurons that were skipped because they are not in memory cannot be read here either.
  const bool whole = Predicts(step.policy.mode) && !context_.ablation.actual_sparsity &&
                     !step.policy.resident_only;
  found_ = live_.Join(ranges, tokens, whole);
  return OkStatus();
}

const NeuronList& SparseFfn::Candidates(const FfnStep& step, const NeuronRange& range, int thread) {
  const NeuronList& candidates = finder_.Find(step, range, thread);
  if (Predicts(step.policy.mode)) predicted_.Put(range, candidates.span());
  return candidates;
}

void SparseFfn::ComputeRange(const FfnStep& step, const NeuronRange& range, int thread) {
  const NeuronList& candidates = Candidates(step, range, thread);
  const GatedNeurons& live = computer_.Decide(step, range, candidates, thread);
  const float* h = computer_.Finish(step, range, live, thread);
  live_.Put(range, live.list, h, step.input.tokens);
}

void SparseFfn::ComputeInPasses(const FfnStep& step) {
  const int layer = step.layer;
  context_.ForRanges(layer, [&](const NeuronRange& range, int thread) {
    passed_[range.index].list = Candidates(step, range, thread);
  });
  context_.ForRanges(layer, [&](const NeuronRange& range, int thread) {
    GatedNeurons& passed = passed_[range.index];
    passed = computer_.Decide(step, range, passed.list, thread);
  });
  context_.ForRanges(layer, [&](const NeuronRange& range, int thread) {
    const GatedNeurons& live = passed_[range.index];
    const float* h = computer_.Finish(step, range, live, thread);
    live_.Put(range, live.list, h, step.input.tokens);
  });
}

Status SparseFfn::FindOnFlash(const FfnStep& step) {
  const auto compute = [&](bool late) {
    context_.ForRanges(step.layer, [&](const NeuronRange& range, int thread) {
      ComputeCandidates(step, range, late, thread);
    });
  };
  context_.ForRanges(step.layer, [&](const NeuronRange& range, int thread) {
    FindCandidates(step, range, thread);
  });
  flash_->Request(step.layer, step.policy.resident_only);
  const bool some_late = flash_->reading();
  // ExactActivity passes no residual, and reads nothing ahead.
  if (step.input.tokens == 1 && step.input.residual != nullptr) ReadNextAhead(step);
  compute(/*late=*/false);
  flash_->store().Poll();
  if (!some_late) return OkStatus();
  RETURN_IF_ERROR(flash_->Await());
  compute(/*late=*/true);
  return OkStatus();
}

void SparseFfn::FindCandidates(const FfnStep& step, const NeuronRange& range, int thread) {
  const NeuronList& candidates = Candidates(step, range, thread);
  if (flash_->deciding_held()) {
    const GatedNeurons& live = computer_.Decide(step, range, candidates, thread);
    flash_->Put(range, live, step.input.tokens);
    live_.Expect(range, live.list, step.input.tokens);
  } else {
    flash_->Put(range, candidates);
    live_.Expect(range, candidates, step.input.tokens);
  }
}

void SparseFfn::ComputeCandidates(const FfnStep& step, const NeuronRange& range, bool late,
                                  int thread) {
  const GatedNeurons& taken = flash_->Candidates(range, late, step.input.tokens, thread);
  const GatedNeurons& live =
      flash_->deciding_held() ? taken : computer_.Decide(step, range, taken.list, thread);
  const float* h = computer_.Finish(step, range, live, thread);
  live_.Add(range, live.list, h, step.input.tokens);
}

void SparseFfn::ReadNextAhead(const FfnStep& step) {
  const int next = step.layer + 1;
  if (next >= context_.config.num_hidden_layers) return;
  const std::optional<FfnPolicy> guess = finder_.ReadAheadPolicy(next, policy(next));
  if (!guess.has_value() || !flash_->ReadAheadPays()) return;
  flash_->store().ReadAhead(next, finder_.FindAll({next, step.input, *guess}));
}

void SparseFfn::Count(const FfnStep& step, bool all) {
  const FfnMode mode = all ? FfnMode::kDense : step.policy.mode;
  const std::int64_t members = context_.ranges.all() ? context_.config.NetworkSizeOf(step.layer)
                                                     : context_.ranges.NumMembers(step.layer);
  const std::int64_t predicted = predicted_.all().size();
  AddRows(
      context_, step.layer,
      {.tokens = step.input.tokens,
       .deciding = Predicts(mode) ? predicted : members,
       .up = all ? members : live_.num_live(),
       .down = static_cast<std::int64_t>(found_.ids.size()),
       .predictor_bytes = finder_.PredictorBytes(step.layer, mode),
       .predictor_operations = step.input.tokens * finder_.PredictorOperations(step.layer, mode)},
      counters_[step.layer]);
  if (trace_ == nullptr || step.input.tokens > 1) return;
  // The trace of a mixture consists of experts: a dense layer has none.
  const std::span<const int> needed = Predicts(mode) ? predicted_.all() : found_.ids;
  trace_->Add(experts_.has_value() ? std::span<const int>() : needed);
}

Result<SparseFfn::Activity> SparseFfn::ExactActivity(int layer, const Input& input,
                                                     const FfnPolicy& policy) {
  const Status found =
      FindLive({layer, {input.hidden, nullptr, 1}, {.mode = FfnMode::kExact}}, false);
  if (flash_.has_value()) {  // ExactActivity does not count as a use: the cache forgets it
    if (!found.ok()) flash_->store().Abandon();
    flash_->store().EndLayer(layer);
    flash_->store().EndStep(0);
  }
  if (!found.ok()) return found;
  ASSIGN_OR_RETURN(const auto predicted, PredictedBy(layer, input, policy));
  return Activity{predicted, found_};
}

}  // namespace thermocline::ffn
