#include "engine/offline/low_rank_trainer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "engine/base/index.h"
#include "engine/base/ratio.h"
#include "engine/offline/threshold_scan.h"
#include "kernels/quantize.h"

namespace thermocline::offline {
namespace {

constexpr int kRankStep = 16;          // ranks are whole panels of the kernels
constexpr int kMeasureTokens = 256;    // computed at a time on held-out data
constexpr double kWorthwhile = 0.995;  // a share below this part of the best counts as progress
constexpr double kWorthDoubling = 0.95;

int RoundRank(double rank) {
  return std::max(1, static_cast<int>(std::lround(rank / kRankStep))) * kRankStep;
}

// Runs `predictor`'s network over the data and counts its logits.
ThresholdScan Scan(LowRankNetwork& network, const predictor::LowRankPredictor& p,
                   const TrainingData& data) {
  std::vector<float> fc1(p.fc1.size()), fc2(p.fc2.size());
  std::transform(p.fc1.begin(), p.fc1.end(), fc1.begin(), kernels::HalfToFloat);
  std::transform(p.fc2.begin(), p.fc2.end(), fc2.begin(), kernels::HalfToFloat);
  if (network.rank() != p.rank) network.Reset(p.rank);
  network.SetWeights(fc1, fc2);
  ThresholdScan scan;
  const int f = data.neurons();
  for (int begin = 0; begin < data.tokens(); begin += kMeasureTokens) {
    const int tokens = std::min(kMeasureTokens, data.tokens() - begin);
    const auto logits = network.Logits(data.inputs.subspan(base::Area(begin, data.hidden_size),
                                                           base::Area(tokens, data.hidden_size)),
                                       tokens);
    for (const float logit : logits) scan.Add(logit);
    for (int t = 0; t < tokens; ++t) {
      data.labels->ForSet(begin + t,
                          [&](int i) { scan.AddPositive(logits[base::Area(t, f) + i]); });
    }
  }
  return scan;
}

class Trainer {
 public:
  Trainer(const TrainingData& train, const TrainingData& held_out, const TrainingOptions& options,
          base::WorkerPool& pool)
      : train_(train),
        held_out_(held_out),
        options_(options),
        network_(NetworkParams(pool)),
        measured_(NetworkParams(pool)),
        random_(options.seed) {}

  Result<predictor::LowRankPredictor> Run() {
    active_share_ = train_.active_share();
    positive_weight_ = options_.positive_weight > 0
                           ? options_.positive_weight
                           : std::sqrt((1 - active_share_) / active_share_ + 1e-3);
    ScaleInputs();
    if (options_.rank > 0) {
      Trial(options_.rank);
    } else {
      SearchRank();
    }
    if (!finite_ || best_.rank == 0) {
      return base::FailedPrecondition(
          "training gave weights that are NaN or infinite: the inputs are, or the learning rate is "
          "too high");
    }
    return best_;
  }

 private:
  LowRankNetwork::Params NetworkParams(base::WorkerPool& pool) const {
    return {.hidden_size = train_.hidden_size,
            .neurons = train_.neurons(),
            .ops = BestTrainingOps(),
            .pool = pool,
            .seed = options_.seed};
  }

  // The dimensions of x differ by orders of magnitude; the network receives x times scale_, and fc1
  // includes the scale when it is stored.
  void ScaleInputs() {
    const int d = train_.hidden_size;
    std::vector<double> square(d);
    for (int t = 0; t < train_.tokens(); ++t) {
      for (std::size_t i = 0; i < square.size(); ++i) {
        const double x = train_.inputs[base::Area(t, d) + i];
        square[i] += x * x;
      }
    }
    scale_.resize(square.size());
    for (std::size_t i = 0; i < square.size(); ++i) {
      const double rms = std::sqrt(square[i] / train_.tokens());
      scale_[i] = rms > 1e-20 ? static_cast<float>(1 / rms) : 0.0F;
    }
  }

  void SearchRank() {
    const int rank_max = RankMax(train_.hidden_size, train_.neurons());
    int rank = std::min(FirstRank(train_.hidden_size, train_.neurons(), active_share_), rank_max);
    bool met = Trial(rank);
    if (met) {
      while (met && rank / 2 >= kRankStep) {
        const int half = rank / 2;
        rank = RoundRank(half);
        const predictor::LowRankPredictor larger = best_;
        met = Trial(rank);
        if (!met) best_ = larger;
      }
      return;
    }
    while (!met && rank < rank_max) {
      const predictor::LowRankPredictor smaller = best_;
      rank = std::min(2 * rank, rank_max);
      met = Trial(rank);
      if (!met && best_.predicted_share > kWorthDoubling * smaller.predicted_share) {
        best_ = smaller;  // higher ranks do not help
        return;
      }
    }
  }

  // Trains `rank` units into best_; returns true if that reaches the required share.
  bool Trial(int rank) {
    network_.Reset(rank);
    best_ = {};
    best_.predicted_share = 2;
    int without_progress = 0;
    for (int epoch = 1; epoch <= options_.epochs_max && finite_; ++epoch) {
      Epoch(options_.learning_rate *
            static_cast<float>(0.5 + 0.5 * std::cos(M_PI * (epoch - 1) / options_.epochs_max)));
      const predictor::LowRankPredictor candidate = Measure();
      if (candidate.predicted_share < kWorthwhile * best_.predicted_share) {
        without_progress = 0;
      } else {
        ++without_progress;
      }
      if (finite_ && candidate.predicted_share < best_.predicted_share) best_ = candidate;
      const bool stop = without_progress >= options_.patience;
      Report(candidate, stop ? options_.epochs_max : epoch);
      if (stop) break;
    }
    ++trials_;
    return best_.predicted_share <= options_.share_limit * best_.active_share;
  }

  void Epoch(float learning_rate) {
    const int d = train_.hidden_size, n = train_.tokens();
    order_.resize(n);
    std::iota(order_.begin(), order_.end(), 0);
    for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random_() % i]);
    for (int begin = 0; begin < n; begin += options_.batch_tokens) {
      const int tokens = std::min(options_.batch_tokens, n - begin);
      const auto batch = std::span(order_).subspan(begin, tokens);
      x_.resize(base::Area(tokens, d));
      for (int t = 0; t < tokens; ++t) {
        const float* from = train_.inputs.data() + base::Area(batch[t], d);
        for (std::size_t i = 0; i < scale_.size(); ++i)
          x_[base::Area(t, d) + i] = from[i] * scale_[i];
      }
      network_.Train({.x = x_,
                      .labels = *train_.labels,
                      .tokens = batch,
                      .positive_weight = static_cast<float>(positive_weight_),
                      .learning_rate = learning_rate});
    }
  }

  // Returns the predictor that would be stored now, measured on the held-out tokens.
  predictor::LowRankPredictor Measure() {
    predictor::LowRankPredictor p = Stored();
    if (!finite_) return p;
    const auto choice = Scan(measured_, p, held_out_).Choose(options_.recall);
    p.threshold = choice.threshold;
    p.recall = choice.recall;
    p.predicted_share = choice.predicted_share;
    p.active_share = choice.active_share;
    return p;
  }

  // The weights as halves. relu(c x) = c relu(x) for c > 0: each unit's largest weights in fc1 and
  // fc2 are made equal, so that neither leaves the range of f16.
  predictor::LowRankPredictor Stored() {
    const int rank = network_.rank(), d = train_.hidden_size, f = train_.neurons();
    predictor::LowRankPredictor p;
    p.rank = rank;
    p.before_norm = options_.before_norm;
    p.fc1.resize(base::Area(rank, d));
    p.fc2.resize(base::Area(f, rank));
    for (int r = 0; r < rank; ++r) {
      const auto in = [&](int i) { return network_.fc1()[base::Area(r, d) + i] * scale_[i]; };
      const auto out = [&](int i) { return network_.fc2()[base::Area(i, rank) + r]; };
      float in_max = 1e-12F, out_max = 1e-12F;
      for (int i = 0; i < d; ++i) in_max = std::max(in_max, std::abs(in(i)));
      for (int i = 0; i < f; ++i) out_max = std::max(out_max, std::abs(out(i)));
      const float balance = std::sqrt(out_max / in_max);
      for (int i = 0; i < d; ++i) p.fc1[base::Area(r, d) + i] = kernels::FloatToHalf(in(i)*balance);
      for (int i = 0; i < f; ++i)
        p.fc2[base::Area(i, rank) + r] = kernels::FloatToHalf(out(i) / balance);
    }
    const auto finite = [](std::uint16_t half) { return (half & 0x7C00) != 0x7C00; };
    finite_ = std::all_of(p.fc1.begin(), p.fc1.end(), finite) &&
              std::all_of(p.fc2.begin(), p.fc2.end(), finite);
    return p;
  }

  void Report(const predictor::LowRankPredictor& candidate, int epoch) {
    if (!options_.on_progress) return;
    const double share = base::Ratio(epoch, options_.epochs_max);
    // The number of ranks that a search will try is unknown: each counts as half of the remaining
    // work.
    const double done = options_.rank > 0 ? share : 1 - std::pow(0.5, trials_ + share);
    options_.on_progress({.rank = candidate.rank,
                          .epoch = epoch,
                          .recall = candidate.recall,
                          .predicted_share = candidate.predicted_share,
                          .share_done = done});
  }

  const TrainingData& train_;
  const TrainingData& held_out_;
  const TrainingOptions& options_;
  LowRankNetwork network_, measured_;
  std::mt19937_64 random_;
  std::vector<float> scale_;  // [D]
  AlignedFloats x_;           // [T, D] of a batch
  std::vector<int> order_;    // [N]
  double active_share_ = 0, positive_weight_ = 1;
  predictor::LowRankPredictor best_;
  int trials_ = 0;
  bool finite_ = true;
};

Status CheckData(const char* what, const TrainingData& data, const TrainingData& other) {
  if (data.tokens() < 1)
    return base::InvalidArgument("the ", what, " part has no tokens; give a longer text");
  if (data.inputs.size() != base::Area(data.tokens(), data.hidden_size) ||
      data.hidden_size != other.hidden_size || data.neurons() != other.neurons()) {
    return base::InvalidArgument("the ", what, " part has ", data.inputs.size(), " inputs, ",
                                 data.tokens(), " tokens and ", data.neurons(),
                                 " neurons, which do not match a hidden size of ",
                                 other.hidden_size, " and ", other.neurons(), " neurons");
  }
  if (data.labels->Count() == 0) {
    return base::InvalidArgument("no neuron is ever active in the ", what,
                                 " part: there is nothing to predict; give a longer text");
  }
  return OkStatus();
}

}  // namespace

int RankMax(int hidden_size, int neurons) {
  const double d = hidden_size, f = neurons;
  return RoundRank(3 * d * f / (d + f) / 6);
}

// A guess: D/8 if a tenth of the neurons is active, and proportional to the root of the active
// share. PowerInfer's figure 9 has the same tendency; Tidepool's layers end between half and four
// times of it.
int FirstRank(int hidden_size, int neurons, double active_share) {
  return std::min(RoundRank(hidden_size * 0.4 * std::sqrt(active_share)),
                  RankMax(hidden_size, neurons));
}

Result<predictor::LowRankPredictor> TrainLowRank(const TrainingData& train,
                                                 const TrainingData& held_out,
                                                 const TrainingOptions& options,
                                                 base::WorkerPool& pool) {
  RETURN_IF_ERROR(CheckData("training", train, train));
  RETURN_IF_ERROR(CheckData("held-out", held_out, train));
  return Trainer(train, held_out, options, pool).Run();
}

PredictorQuality MeasureLowRank(const predictor::LowRankPredictor& p, const TrainingData& data,
                                base::WorkerPool& pool) {
  LowRankNetwork network({.hidden_size = data.hidden_size,
                          .neurons = data.neurons(),
                          .ops = BestTrainingOps(),
                          .pool = pool});
  const auto at = Scan(network, p, data).At(p.threshold);
  return {
      .recall = at.recall, .predicted_share = at.predicted_share, .active_share = at.active_share};
}

}  // namespace thermocline::offline
