#include "engine/ffn/hybrid_ffn.h"

#include <algorithm>

#include "engine/base/index.h"
#include "engine/base/stopwatch.h"
#include "engine/nn/offset.h"

namespace thermocline::ffn {
namespace {

using Part = kernels::FinishSumParams::Part;

// Columns of a work item of the last step.
constexpr int kFinishColumns = 1024;

}  // namespace

HybridCounters& HybridCounters::operator+=(const HybridCounters& other) {
  const auto add = [](PartitionCounters& to, const PartitionCounters& from) {
    to.busy_s += from.busy_s;
    to.steps += from.steps;
    to.active += from.active;
  };
  add(hot, other.hot);
  add(cold, other.cold);
  total_s += other.total_s;
  wait_s += other.wait_s;
  return *this;
}

HybridFfn::HybridFfn(const Params& p)
    : config_(p.config),
      weights_(p.weights),
      ops_(p.ops),
      pool_(p.pool),
      cold_(p.cold),
      hot_(p.hot),
      runs_(kernels::NumSumRuns(p.config.intermediate_size)) {
  if (!kernels::Traits(p.weights.FirstNetwork().down_rows.type).quantized) return;
  sums_ = SideSums(p.config, p.tokens_max);
}

Status HybridFfn::Run(int layer, const SparseFfn::Input& input, bool lossless, float* out) {
  if (hot_.NumNeurons(layer) == 0) return cold_.Run(layer, input, lossless, out);
  const base::Stopwatch watch;
  const double waited = counters_.wait_s;
  Status status = RunBoth(layer, input, lossless, out);
  const double took = watch.Seconds();
  counters_.total_s += took;
  counters_.cold.busy_s += took - (counters_.wait_s - waited);
  return status;
}

HybridCounters HybridFfn::counters() const {
  HybridCounters all = counters_;
  all.hot = hot_.counters();
  return all;
}

template <typename Body>
auto HybridFfn::Waiting(const Body& body) {
  const base::Stopwatch watch;
  auto result = body();
  counters_.wait_s += watch.Seconds();
  return result;
}

Status HybridFfn::RunBoth(int layer, const SparseFfn::Input& input, bool lossless, float* out) {
  const FfnPolicy policy = cold_.PolicyFor(layer, lossless);
  hot_.Start({layer, input, policy});
  Status found = cold_.Find(layer, input, policy, lossless);
  if (!found.ok()) {
    Drain(input.tokens);
    return found;
  }
  if (input.decoded) {
    ++counters_.cold.steps;
    counters_.cold.active += cold_.found();
  }
  const kernels::DType type = weights_.layers[layer].down_rows.type;
  Status status;
  if (!kernels::Traits(type).quantized) {
    status = AddOutputs(layer, input.tokens, out);
  } else {
    for (int t = 0; t < input.tokens && status.ok(); t += kShareTokens)
      status = ComputeSharedSums(layer, t, std::min(kShareTokens, input.tokens - t), out);
  }
  cold_.EndLayer(layer);
  return status;
}

Status HybridFfn::AddOutputs(int layer, int tokens, float* out) {
  cold_.SumFound(layer, tokens, out, true);
  ASSIGN_OR_RETURN(const float* hot, Waiting([&] { return hot_.AwaitOutput(); }));
  ops_.add(out, hot, tokens * config_.hidden_size);
  return OkStatus();
}

Status HybridFfn::ComputeSharedSums(int layer, int first, int count, float* out) {
  cold_.SumShared(layer, first, count, {.maxima = sums_.maxima.data()});
  ASSIGN_OR_RETURN(const float* hot, Waiting([&] { return hot_.Maxima(); }));
  const std::size_t cells = base::Area(count * runs_, config_.hidden_size / 32);
  for (std::size_t i = 0; i < cells; ++i) sums_.maxima[i] = std::max(sums_.maxima[i], hot[i]);
  hot_.Sum(sums_.maxima.data());
  cold_.SumShared(layer, first, count, sums_.under(sums_.maxima.data()));
  ASSIGN_OR_RETURN(const Part part, Waiting([&] { return hot_.Await(); }));
  Finish(layer, count, part, out + nn::Offset(first, config_.hidden_size));
  return OkStatus();
}

void HybridFfn::Finish(int layer, int count, const Part& hot, float* out) {
  const model::LayerWeights& w = weights_.layers[layer];
  const int d = config_.hidden_size, tiles = (d + kFinishColumns - 1) / kFinishColumns;
  const kernels::DType type = w.down_rows.type;
  const bool minimums = type == kernels::DType::kQ4_1 || type == kernels::DType::kQ4_K;
  pool_.Run(count * tiles, [&](int item, int) {
    const int t = item / tiles, begin = item % tiles * kFinishColumns,
              end = std::min(d, begin + kFinishColumns);
    const std::ptrdiff_t at = nn::Offset(t * runs_, d);
    const auto part = [&](const std::int32_t* high, const std::int32_t* low, const float* sums) {
      return Part{high + at, low + at, minimums ? sums + at / 32 : nullptr};
    };
    float* y = out + nn::Offset(t, d);
    ops_.finish_sum({.runs = runs_,
                     .cols = d,
                     .limits = sums_.maxima.data() + at / 32,
                     .num_parts = 2,
                     .parts = {part(sums_.high.data(), sums_.low.data(), sums_.minimums.data()),
                               part(hot.high, hot.low, hot.minimums)},
                     .col_begin = begin,
                     .col_end = end,
                     .out = y});
    if (w.down.bias != nullptr) ops_.add(y + begin, w.down.bias + begin, end - begin);
  });
}

void HybridFfn::Drain(int tokens) {
  if (sums_.maxima.empty()) {
    (void)hot_.AwaitOutput();
    return;
  }
  std::fill(sums_.maxima.begin(), sums_.maxima.end(), 0.0F);
  for (int t = 0; t < tokens; t += kShareTokens) {
    if (!hot_.Maxima().ok()) return;
    hot_.Sum(sums_.maxima.data());
    (void)hot_.Await();
  }
}

}  // namespace thermocline::ffn
