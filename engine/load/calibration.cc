#include "engine/load/calibration.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>

#include "engine/base/index.h"
#include "engine/base/json_cache.h"
#include "engine/base/log.h"
#include "engine/base/ratio.h"
#include "engine/base/stopwatch.h"
#include "engine/base/system_memory.h"
#include "engine/ffn/cpu_partition.h"
#include "engine/ffn/hybrid_ffn.h"
#include "engine/ffn/neuron_split.h"
#include "engine/predictor/subset.h"

namespace thermocline::load {
namespace {

using placement::Machine;
using placement::Processor;

constexpr std::size_t kNetworkBytesMax = std::size_t{768} << 20;  // beyond every cache
constexpr std::size_t kCopyBytes = std::size_t{32} << 20;

// The lower quartile, to exclude the time that other processes took from this one.
double Quartile(std::vector<double> values) {
  const std::ptrdiff_t at = values.size() / 4;
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[at];
}

// Returns at most `most` evenly spaced neurons of each layer, no two of them adjacent.
ffn::NeuronIds Every2nd(const model::ModelConfig& config, int most) {
  ffn::NeuronIds ids(config.num_hidden_layers);
  for (std::vector<int>& layer : ids) {
    const int step = std::max(2, config.intermediate_size / most);
    for (int i = 0; i < config.intermediate_size && base::IntSize(layer) < most; i += step)
      layer.push_back(i);
  }
  return ids;
}

// Runs both sides of a synthetic network, layer by layer, on one random input.
class Rig {
 public:
  Rig(const SyntheticNetwork& network, const CalibrationOptions& options, ffn::NeuronIds hot,
      ffn::NeuronIds cold)
      : network_(network),
        hot_ids_(std::move(hot)),
        cold_ids_(std::move(cold)),
        pool_(options.cold_threads),
        multiplier_(*options.ops, pool_, nn::PanelScratchBytes(network.weights)),
        hot_predictors_(*predictor::SubsetOf(network.predictors, hot_ids_)),
        cold_predictors_(*predictor::SubsetOf(network.predictors, cold_ids_)),
        cold_({.config = network.config,
               .weights = network.weights,
               .predictors = cold_predictors_.get(),
               .ops = *options.ops,
               .pool = pool_,
               .multiplier = multiplier_,
               .tokens_max = 1,
               .members = &cold_ids_}),
        hot_({.config = network.config,
              .weights = network.weights,
              .predictors = hot_predictors_.get(),
              .members = hot_ids_,
              .ops = *options.ops,
              .threads = std::max(1, options.hot_threads),
              .tokens_max = 1}),
        both_({.config = network.config,
               .weights = network.weights,
               .ops = *options.ops,
               .pool = pool_,
               .cold = cold_,
               .hot = hot_,
               .tokens_max = 1}),
        dense_out_(network.dense[0].rows),
        out_(network.config.hidden_size) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    hidden_.Resize(1, network.config.hidden_size);
    for (float& x : hidden_.x) x = normal(random);
    nn::QuantizeToken(*options.ops, hidden_, 0);
  }

  // Mean seconds of a layer, by side, and its live neurons.
  struct Layer {
    double hot = 0, cold = 0, total = 0, dense = 0;
    double hot_live = 0, cold_live = 0;  // neurons
  };

  // Runs the layers once, as decoding a token does: the attention matrices that are read between
  // two feed-forward networks evict the networks' weights from the caches.
  Layer Pass(const ffn::FfnPolicy& policy) {
    const ffn::HybridCounters before = both_.counters();
    const int layers = network_.config.num_hidden_layers;
    double dense_s = 0;
    for (int l = 0; l < layers; ++l) {
      const model::Linear dense{network_.dense[l], nullptr};
      const std::array product = {nn::Product{&dense, dense_out_.data()}};
      const base::Stopwatch watch;
      multiplier_.Multiply(product, hidden_.view(), 1);
      dense_s += watch.Seconds();
      cold_.policy(l) = policy;
      (void)both_.Run(l, {hidden_, hidden_.x.data(), 1}, false, out_.data());
    }
    const ffn::HybridCounters after = both_.counters();
    return {(after.hot.busy_s - before.hot.busy_s) / layers,
            (after.cold.busy_s - before.cold.busy_s) / layers,
            (after.total_s - before.total_s) / layers,
            dense_s / layers,
            base::Ratio(after.hot.active - before.hot.active, layers),
            base::Ratio(after.cold.active - before.cold.active, layers)};
  }

  // Lower quartiles over passes for `seconds`.
  Layer Measure(const ffn::FfnPolicy& policy, double seconds) {
    Pass(policy);
    std::vector<double> hot, cold, total, dense;
    Layer last;
    const base::Stopwatch watch;
    do {
      last = Pass(policy);
      hot.push_back(last.hot);
      cold.push_back(last.cold);
      total.push_back(last.total);
      dense.push_back(last.dense);
    } while (watch.Seconds() < seconds || total.size() < 5);
    return {Quartile(hot),   Quartile(cold), Quartile(total),
            Quartile(dense), last.hot_live,  last.cold_live};
  }

  // The threshold above which about `share` of the neurons are live.
  ffn::FfnPolicy LivePolicy(double share) {
    ffn::FfnPolicy policy{.mode = FfnMode::kThreshold, .shift = 0};
    const double wanted = share * base::IntSize(cold_ids_[0]);
    float low = 0, high = 16;
    for (int i = 0; i < 14; ++i) {
      policy.shift = (low + high) / 2;
      (void)cold_.Find(0, {hidden_, hidden_.x.data(), 1}, policy);
      (cold_.found() > wanted ? low : high) = policy.shift;
    }
    return policy;
  }

 private:
  const SyntheticNetwork& network_;
  const ffn::NeuronIds hot_ids_, cold_ids_;
  base::WorkerPool pool_;
  nn::Multiplier multiplier_;
  const std::unique_ptr<predictor::Predictors> hot_predictors_, cold_predictors_;
  ffn::SparseFfn cold_;
  ffn::CpuPartition hot_;
  ffn::HybridFfn both_;
  nn::ActivationBuffer hidden_;
  std::vector<float> dense_out_, out_;
};

double RowBytes(const kernels::RowMatrix& m) {
  return static_cast<double>(kernels::RowBytes(m.type, m.cols));
}

}  // namespace

Processor Derive(const model::LayerWeights& w, const Passes& p, double neurons) {
  const bool gated = w.gate.linear.weight.rows > 0;
  const double deciding = RowBytes((gated ? w.gate : w.up).rows()),
               rest = (gated ? RowBytes(w.up.rows()) : 0) + RowBytes(w.down_rows),
               planes = static_cast<double>(kernels::SignWords(w.up.linear.weight.cols)) * 8;
  constexpr double kLeast = 1e-9;  // seconds: noise must not make a rate negative
  const auto rate = [&](double bytes, double seconds) { return bytes / std::max(kLeast, seconds); };
  const double row_s =
      std::max(kLeast, p.many.seconds - p.some.seconds) / std::max(1.0, p.many.live - p.some.live);
  // The part of the time of the sum over rows that does not depend on their number.
  const double sum_s = std::max(0.0, p.some.seconds - p.decided.seconds - row_s * p.some.live);
  Processor out;
  out.rows_bytes_per_s = rest / row_s;
  out.layer_s = p.few.seconds + sum_s;
  out.decide_bytes_per_s =
      rate(std::max(1.0, neurons - kFewNeurons) * deciding, p.decided.seconds - p.few.seconds);
  if (p.whole.seconds > 0)
    out.whole_bytes_per_s = rate(neurons * (deciding + rest), p.whole.seconds - p.few.seconds);
  out.predictor_bytes_per_s =
      rate(std::max(1.0, neurons - kFewNeurons) * planes, p.predicting.seconds - p.few.seconds);
  return out;
}

namespace {

double CopyRate() {
  std::vector<std::byte> from(kCopyBytes, std::byte{1}), to(kCopyBytes);
  std::vector<double> seconds;  // per byte
  for (int i = 0; i < 5; ++i) {
    const base::Stopwatch watch;
    std::memcpy(to.data(), from.data(), kCopyBytes);
    seconds.push_back((watch.Seconds()) / static_cast<double>(kCopyBytes));
  }
  return 1 / Quartile(seconds);
}

}  // namespace

Result<Machine> MeasureCpu(const model::ModelConfig& model, const CalibrationOptions& options) {
  const std::size_t bytes = std::min(kNetworkBytesMax, options.network_bytes);
  ASSIGN_OR_RETURN(const auto network, MakeSyntheticNetwork(model, options.types, bytes));
  const int neurons = model.intermediate_size / 2;
  const ffn::FfnPolicy nothing{.mode = FfnMode::kThreshold, .shift = kNothingLive},
      none_predicted{.mode = FfnMode::kSign, .shift = 1e9F};
  const double part = options.seconds / 7;
  const ffn::NeuronIds few_ids = Every2nd(network->config, kFewNeurons);
  const Rig::Layer few = Rig(*network, options, few_ids, few_ids).Measure(nothing, part / 2);
  const ffn::NeuronIds ids = Every2nd(network->config, neurons);
  Rig rig(*network, options, options.hot_threads > 0 ? ids : few_ids, ids);
  const Rig::Layer decided = rig.Measure(nothing, part),
                   predicting = rig.Measure(none_predicted, part),
                   some = rig.Measure(rig.LivePolicy(kLiveFew), part),
                   many = rig.Measure(rig.LivePolicy(kLiveMany), part),
                   whole = rig.Measure({.mode = FfnMode::kDense}, part);
  const model::LayerWeights& w = network->weights.layers[0];
  Machine machine;
  machine.hot_homes = false;
  machine.name = StrCat(base::ProcessorName(), ", ", options.cold_threads, " + ",
                        options.hot_threads, " threads, ", options.ops->name);
  using Layer = Rig::Layer;
  const auto passes = [&](const auto& side) {
    return Passes{side(few), side(decided), side(some), side(many), side(predicting), side(whole)};
  };
  machine.cold = Derive(w, passes([](const Layer& l) {
                          return Side{l.cold, l.cold_live};
                        }),
                        neurons);
  machine.hot = Derive(w, passes([](const Layer& l) { return Side{l.hot, l.hot_live}; }), neurons);
  machine.cold.dense_bytes_per_s = static_cast<double>(network->dense[0].bytes()) / many.dense;
  machine.hot->dense_bytes_per_s =
      machine.cold.dense_bytes_per_s * std::max(1, options.hot_threads) / options.cold_threads;
  // A layer waits twice: for the maxima and for the sums.
  machine.sync_s = std::max(0.0, few.total - std::max(few.cold, few.hot)) / 2;
  machine.link_bytes_per_s = CopyRate();
  return machine;
}

Result<Machine> CpuMachine(const model::ModelConfig& model, const std::string& model_hash,
                           const CalibrationOptions& o, bool anew) {
  const std::string key = StrCat(base::ProcessorName(), "|", o.ops->name, "|", o.cold_threads, "+",
                                 o.hot_threads, "|", model_hash);
  const base::JsonCache cache("machine", key);
  if (!anew) {
    if (const auto json = cache.Read()) {
      auto machine = Machine::FromJson(*json);
      const bool two_partitions =
          machine.ok() && machine->hot.has_value() && !machine->unified && !machine->hot_homes;
      if (two_partitions) return *std::move(machine);
      base::LogWarning(cache.path(), ": ",
                       machine.ok() ? "not a machine with two partitions of its CPU"
                                    : machine.status().message(),
                       "; it is measured anew");
    }
  }
  ASSIGN_OR_RETURN(Machine machine, MeasureCpu(model, o));
  machine.key = key;
  const Status kept = cache.Write(machine.ToJson());
  if (!kept.ok()) base::LogWarning("what this machine can do is not remembered: ", kept.message());
  return machine;
}

}  // namespace thermocline::load
