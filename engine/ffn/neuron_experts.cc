#include "engine/ffn/neuron_experts.h"

#include <algorithm>
#include <numeric>

#include "engine/base/index.h"
#include "engine/nn/offset.h"

namespace thermocline::ffn {
namespace {

// Maximum number of experts computed in one loop, and neurons of a range: few, so that threads
// finish at about the same time.
constexpr int kSlots = 16, kExpertRange = 128;

// The sizes of one network.
FfnSizes SizesOfOne(const FfnSizes& sizes, const model::ModelConfig& config) {
  return {.config = config,
          .tokens_max = sizes.tokens_max,
          .threads = sizes.threads,
          .sign = sizes.sign};
}

int SlotsOf(const model::ModelConfig& mixture, int tokens_max) {
  const model::ExpertConfig& e = mixture.experts;
  return std::min({kSlots, e.num_experts, tokens_max * e.num_experts_per_tok});
}

// Prefetches these rows, which are summed soon.
void AskFor(const kernels::RowMatrix& rows, std::span<const int> ids) {
  constexpr std::ptrdiff_t kLine = 64;
  const std::ptrdiff_t bytes = kernels::RowBytes(rows.type, rows.cols);
  for (const int id : ids) {
    const std::uint8_t* row = rows.row(id);
    for (std::ptrdiff_t at = 0; at < bytes; at += kLine) __builtin_prefetch(row + at, 0, 2);
  }
}

}  // namespace

NeuronExperts::Slot::Slot(int neurons, int hidden, int tokens_max)
    : live(neurons, tokens_max, kExpertRange),
      candidates((neurons + kExpertRange - 1) / kExpertRange) {
  tokens.Resize(tokens_max, hidden);
}

NeuronExperts::NeuronExperts(const ExpertNetworks& networks, const FfnContext& context,
                             int tokens_max)
    : context_{networks.config,
               networks.weights,
               context.ops,
               context.pool,
               context.multiplier,
               NeuronRanges(networks.config.intermediate_size, nullptr, kExpertRange)},
      experts_(context.config.experts.num_experts),
      whole_({.config = networks.config,
              .weights = networks.weights,
              .predictors = &networks.predictors,
              .ops = context.ops,
              .pool = context.pool,
              .multiplier = context.multiplier,
              .tokens_max = tokens_max}),
      finder_(context_, &networks.predictors, std::min(tokens_max, kSparseTokensMax),
              SlotsOf(context.config, tokens_max)),
      computer_(context_, std::min(tokens_max, kSparseTokensMax)),
      down_(context_),
      residual_(base::Area(tokens_max, context.config.hidden_size)),
      y_(residual_.size()) {
  tokens_.Resize(tokens_max, context.config.hidden_size);
  slots_.reserve(SlotsOf(context.config, tokens_max));
  while (slots_.size() < slots_.capacity()) {
    slots_.emplace_back(networks.config.intermediate_size, context.config.hidden_size,
                        std::min(tokens_max, kSparseTokensMax));
  }
}

std::size_t NeuronExperts::Bytes(const FfnSizes& sizes) {
  const int d = sizes.config.hidden_size, slots = SlotsOf(sizes.config, sizes.tokens_max);
  const model::ModelConfig config = ExpertNetworks::ConfigOf(sizes.config);
  const FfnSizes one = SizesOfOne(sizes, config);
  const int ranges = (config.intermediate_size + kExpertRange - 1) / kExpertRange;
  return SparseFfn::Bytes(one) + CandidateFinder::Bytes(one, slots) + RangeComputer::Bytes(one) +
         DownSum::Bytes(one) +
         slots * (sizeof(Slot) + base::Area(ranges, sizeof(int)) +
                  nn::ActivationBuffer::Bytes(one.sparse_tokens(), d) +
                  LiveNeurons::Bytes(config.intermediate_size, one.sparse_tokens(), kExpertRange)) +
         nn::ActivationBuffer::Bytes(sizes.tokens_max, d) +
         2 * base::Area(sizes.tokens_max, d) * sizeof(float);
}

void NeuronExperts::Add(const FfnStep& step, std::span<const ExpertUnit> units, float* out) {
  counts_ = {};
  while (!units.empty()) {
    const int together = BatchSize(step.policy.mode, units);
    if (together == 0) {
      AddWhole(step, units.front(), out);
    } else {
      AddBatch(step, units.first(together), out);
    }
    units = units.subspan(std::max(together, 1));
  }
  counts_.steps = counts_.computed = 0;  // a step's experts count as one step
}

int NeuronExperts::BatchSize(FfnMode mode, std::span<const ExpertUnit> units) const {
  std::size_t count = 0;
  while (mode != FfnMode::kDense && count < std::min(units.size(), slots_.size()) &&
         units[count].tokens <= kSparseTokensMax)
    ++count;
  return static_cast<int>(count);
}

const nn::ActivationBuffer& NeuronExperts::Gather(const ExpertUnit& unit, const FfnInput& input,
                                                  nn::ActivationBuffer& tokens) const {
  const int d = context_.config.hidden_size;
  if (input.tokens == 1) return input.hidden;
  for (int i = 0; i < unit.tokens; ++i) {
    std::copy_n(input.hidden.x.data() + nn::Offset(unit.ids[i], d), d,
                tokens.x.data() + nn::Offset(i, d));
    nn::QuantizeToken(context_.ops, tokens, i);
  }
  return tokens;
}

void NeuronExperts::AddWhole(const FfnStep& step, const ExpertUnit& unit, float* out) {
  const int network = step.layer * experts_ + unit.expert, d = context_.config.hidden_size;
  const nn::ActivationBuffer& hidden = Gather(unit, step.input, tokens_);
  whole_.policy(network) = step.policy;
  CHECK(whole_.Run(network, {hidden, nullptr, unit.tokens, step.input.decoded}, false, y_.data())
            .ok());
  counts_ += whole_.TakeCounters(network);
  AddWeighed(unit, 0, d, out);
}

FfnStep NeuronExperts::StepOf(const FfnStep& step, int slot) const {
  const Slot& s = slots_[slot];
  const nn::ActivationBuffer& hidden = step.input.tokens == 1 ? step.input.hidden : s.tokens;
  return {s.network, {hidden, nullptr, s.unit->tokens, step.input.decoded}, step.policy, slot};
}

void NeuronExperts::AddBatch(const FfnStep& step, std::span<const ExpertUnit> units, float* out) {
  const int slots = base::IntSize(units);
  for (int i = 0; i < slots; ++i) {
    slots_[i].unit = &units[i];
    slots_[i].network = step.layer * experts_ + units[i].expert;
    Gather(units[i], step.input, slots_[i].tokens);
    finder_.Prepare(StepOf(step, i));
  }
  const int ranges = context_.ranges.NumRanges(0);
  context_.pool.Run(slots * ranges, [&](int item, int thread) {
    FindRange(StepOf(step, item / ranges), item / ranges, item % ranges, thread);
  });
  for (int i = 0; i < slots; ++i) Join(step, i);
  SumDown(slots, out);
}

void NeuronExperts::FindRange(const FfnStep& step, int slot, int range, int thread) {
  Slot& s = slots_[slot];
  const NeuronRange neurons = context_.ranges.Of(step.layer, range);
  const NeuronList& candidates = finder_.Find(step, neurons, thread);
  s.candidates[range] = candidates.count;
  const GatedNeurons& live = computer_.Decide(step, neurons, candidates, thread);
  const float* h = computer_.Finish(step, neurons, live, thread);
  AskFor(context_.layer(step.layer).down_rows, live.list.span());
  s.live.Put(neurons, live.list, h, step.input.tokens);
}

void NeuronExperts::Join(const FfnStep& step, int slot) {
  Slot& s = slots_[slot];
  s.found = s.live.Join(context_.ranges.NumRanges(s.network), s.unit->tokens);
  if (!step.input.decoded) return;
  const FfnMode mode = step.policy.mode;
  AddRows(context_, s.network,
          {.tokens = s.unit->tokens,
           .deciding = std::accumulate(s.candidates.begin(), s.candidates.end(), std::int64_t{0}),
           .up = s.live.num_live(),
           .down = base::IntSize(s.found.ids),
           .predictor_bytes = finder_.PredictorBytes(s.network, mode),
           .predictor_operations = s.unit->tokens * finder_.PredictorOperations(s.network, mode)},
          counts_);
}

void NeuronExperts::SumDown(int slots, float* out) {
  down_.ForColumns(false, [&](int begin, int end, int thread) {
    for (int i = 0; i < slots; ++i) {
      const Slot& s = slots_[i];
      down_.SumColumns(s.network, s.unit->tokens, s.found, begin, end, y_.data(), thread);
      AddWeighed(*s.unit, begin, end, out);
    }
  });
}

void NeuronExperts::AddWeighed(const ExpertUnit& unit, int begin, int end, float* out) const {
  const int d = context_.config.hidden_size;
  for (int i = 0; i < unit.tokens; ++i) {
    const float* y = y_.data() + nn::Offset(i, d);
    float* to = out + nn::Offset(unit.ids[i], d);
    for (int c = begin; c < end; ++c) to[c] += unit.weight[i] * y[c];
  }
}

}  // namespace thermocline::ffn
