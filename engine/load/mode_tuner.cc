#include "engine/load/mode_tuner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>

#include "engine/base/index.h"
#include "engine/base/log.h"
#include "engine/model/weights/down_layout.h"

namespace thermocline::load {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPrompt = 16, kDecode = 16, kRepetitions = 5;
constexpr int kRounds = 3;  // of each layout

// Bytes a token reads in a mode, with down neuron-major (`rows`) or not: `live` and `predicted` are
// shares of the neurons.
double BytesOf(const LoadedModel& model, std::size_t layer, FfnMode mode, bool rows, double live,
               double predicted) {
  const model::LayerWeights& w = model.weights->layers[layer];
  const auto bytes = [](const model::NeuronMatrix& m) {
    return static_cast<double>(m.linear.weight.bytes());
  };
  const bool gated = model.config.architecture->gated;
  const double first = bytes(predictor::DecidingMatrix(w)), second = gated ? bytes(w.up) : 0;
  const double down = static_cast<double>(w.down.weight.bytes() + w.down_rows.bytes());
  if (mode == FfnMode::kDense) return first + second + down;
  const double rest = live * second + (rows ? live : 1) * down;
  if (mode == FfnMode::kExact) return first + rest;
  const predictor::LayerPredictors& p = model.predictors->layers[layer];
  const double planes =
      static_cast<double>(mode == FfnMode::kSign ? p.sign->bytes() : p.low_rank->bytes());
  return planes + predicted * first + rest;
}

// A layer's down projection in the file's layout and neuron-major, alternately in the same memory:
// the two are timed in turns, because a machine's bandwidth changes within seconds.
class DownInTurns {
 public:
  DownInTurns(model::LayerWeights& layer, base::WorkerPool& pool)
      : layer_(layer), columns_(layer), columns_bytes_(Bytes(columns_.down.weight)) {
    model::TurnDown(layer, pool);
    rows_ = layer;
    rows_bytes_ = Bytes(columns_.down.weight);
  }
  void Use(bool rows) {
    const std::vector<std::uint8_t>& bytes = rows ? rows_bytes_ : columns_bytes_;
    std::memcpy(const_cast<std::uint8_t*>(columns_.down.weight.data), bytes.data(), bytes.size());
    const model::LayerWeights& used = rows ? rows_ : columns_;
    layer_.down = used.down;
    layer_.down_rows = used.down_rows;
  }

 private:
  static std::vector<std::uint8_t> Bytes(const kernels::PackedMatrix& down) {
    return {down.data, down.data + down.bytes()};
  }

  model::LayerWeights& layer_;
  const model::LayerWeights columns_;
  model::LayerWeights rows_;
  const std::vector<std::uint8_t> columns_bytes_;
  std::vector<std::uint8_t> rows_bytes_;
};

// The layer whose network is timed for all.
std::size_t MiddleNetwork(const model::Weights& weights) {
  std::size_t layer = weights.layers.size() / 2;
  for (std::size_t tried = 0; tried < weights.layers.size(); ++tried)
    if (const std::size_t at = (layer + tried) % weights.layers.size();
        weights.layers[at].has_network())
      return at;
  return layer;
}

class Tuner {
 public:
  Tuner(LoadedModel& model, const ModeChoice& choice)
      : model_(model),
        choice_(choice),
        shares_(model.weights->layers.size()),
        probe_(MiddleNetwork(*model.weights)) {}

  Status Run() {
    if (!model_.config.HasZeros()) return OkStatus();  // dense
    ASSIGN_OR_RETURN(const auto cache, model_.MakeCache(kPrompt + kDecode + 1));
    transformer_ = model_.MakeTransformer(kPrompt, kPrompt + kDecode + 1);
    RETURN_IF_ERROR(Decode(*cache));
    Choice best;
    if (MayTurn()) {
      best = ChooseLayout();
    } else {
      TimeProbe();
      best = Weigh();
    }
    model_.ffn_modes = best.modes;
    for (std::size_t l = 0; l < best.modes.size(); ++l)
      UseLayoutsOf(best.modes[l], l, model_, choice_.also);
    return OkStatus();
  }

 private:
  struct Choice {
    std::vector<FfnMode> modes;  // [L]
    double seconds = 0;          // of all layers, per token
  };

  // The fastest modes for the current layout of down in the probed layer. Requires: TimeProbe.
  Choice Weigh() const {
    const auto& seconds = seconds_.at(turned());
    Choice choice;
    for (std::size_t l = 0; l < shares_.size(); ++l) {
      if (!model_.weights->layers[l].has_network()) {
        choice.modes.push_back(FfnMode::kDense);
        continue;
      }
      double least = INFINITY;
      FfnMode best = FfnMode::kDense;
      for (const FfnMode mode : Candidates()) {
        const double estimate = seconds.at(mode) * Bytes(l, mode) / Bytes(probe_, mode);
        if (estimate >= least) continue;
        least = estimate;
        best = mode;
      }
      choice.modes.push_back(best);
      choice.seconds += least;
    }
    return choice;
  }

  bool turned() const { return model_.weights->layers[probe_].down_rows.rows > 0; }

  bool MayTurn() const {
    const auto& layers = model_.weights->layers;
    const model::LayerWeights& probed = layers[probe_];
    const std::size_t needed = model::TurnDownBytes(probed) + 2 * probed.down.weight.bytes();
    const bool room = needed <= model_.memory.RoomWhileLoading();
    return choice_.may_turn_down && room &&
           std::all_of(layers.begin(), layers.end(), [&](const auto& w) {
             return !w.has_network() || (model::CanTurnDown(w).ok() && model::TurnsDownExactly(w) &&
                                         w.down.weight.bytes() >= choice_.turned_bytes_min);
           });
  }

  Choice ChooseLayout() {
    auto& layers = model_.weights->layers;
    DownInTurns down(layers[probe_], *model_.pool);
    Choice as_in_file, turned;
    for (int round = 0; round < kRounds; ++round) {
      for (const bool rows : {true, false}) {
        down.Use(rows);
        TimeProbe();
        (rows ? turned : as_in_file) = Weigh();
      }
    }
    const bool pays = turned.seconds <= choice_.turned_share_max * as_in_file.seconds;
    const auto ms = [](const Choice& choice) { return std::round(choice.seconds * 1e5) / 100; };
    base::LogInfo("down projections neuron-major: ", ms(turned), " ms a token, as in the file ",
                  ms(as_in_file), " ms (measured); they are ", pays ? "turned" : "left");
    if (!pays) return as_in_file;
    for (model::LayerWeights& layer : layers) {
      if (&layer != &layers[probe_] && layer.has_network()) model::TurnDown(layer, *model_.pool);
    }
    down.Use(true);
    return turned;
  }

  std::vector<FfnMode> Candidates() const {
    std::vector<FfnMode> all = {FfnMode::kDense, FfnMode::kExact};
    all.insert(all.end(), choice_.candidates.begin(), choice_.candidates.end());
    return all;
  }

  // Records the share of live neurons of every layer and an input of the probed one.
  Status Decode(nn::KvCache& cache) {
    std::vector<int> prompt(kPrompt);
    for (int i = 0; i < kPrompt; ++i) prompt[i] = ((i * 7919 + 13) % model_.config.vocab_size);
    ASSIGN_OR_RETURN(auto logits,
                     transformer_->Forward(prompt, cache, exec::Transformer::Logits::kLast,
                                           exec::Transformer::Step::kPrefill));
    for (int l = 0; l < base::IntSize(shares_); ++l)
      transformer_->ffn().policy(l).mode = FfnMode::kExact;
    for (int i = 0; i < kDecode; ++i) {
      const int token = base::IndexOfLargest(logits);
      ASSIGN_OR_RETURN(logits, transformer_->Forward(std::span(&token, 1), cache,
                                                     exec::Transformer::Logits::kLast));
    }
    const double neurons = static_cast<double>(model_.config.intermediate_size) * kDecode;
    for (int l = 0; l < base::IntSize(shares_); ++l) {
      const ffn::FfnCounters& c = transformer_->ffn().counters(l);
      shares_[l] =
          static_cast<double>(model_.config.architecture->gated ? c.up_rows : c.down_rows) /
          neurons;
    }
    return OkStatus();
  }

  // Records the least time of each mode, by the layout of down.
  void TimeProbe() {
    const int layer = static_cast<int>(probe_);
    for (const FfnMode mode : Candidates()) {
      UseLayoutsOf(mode, probe_, model_, choice_.also);
      transformer_->ffn().policy(layer).mode = mode;
      double& least = seconds_[turned()].try_emplace(mode, INFINITY).first->second;
      for (int r = 0; r < kRepetitions; ++r) {
        const auto begin = Clock::now();
        CHECK(transformer_->ProbeFfn(layer).ok());  // everything is in memory
        least = std::min(least, std::chrono::duration<double>(Clock::now() - begin).count());
      }
    }
  }

  double Bytes(std::size_t layer, FfnMode mode) const {
    double predicted = 0;
    const predictor::LayerPredictors& p = model_.predictors->layers[layer];
    if (mode == FfnMode::kSign || mode == FfnMode::kLowRank) {
      const predictor::LayerSideCar& learnt = model_.side_car->layers[layer];
      predicted =
          mode == FfnMode::kSign ? learnt.sign->predicted_share : learnt.low_rank->predicted_share;
      CHECK(p.sign.has_value() || p.low_rank.has_value());
    }
    return BytesOf(model_, layer, mode, turned(), shares_[layer], predicted);
  }

  LoadedModel& model_;
  const ModeChoice& choice_;
  std::vector<double> shares_;                         // of live neurons, by layer
  std::map<bool, std::map<FfnMode, double>> seconds_;  // of the probed layer, by turned()
  const std::size_t probe_;                            // layer
  std::unique_ptr<exec::Transformer> transformer_;
};

}  // namespace

void UseLayoutsOf(FfnMode mode, std::size_t layer, LoadedModel& model,
                  const std::vector<FfnMode>& also) {
  constexpr auto kRows = model::Layout::kRows, kPanels = model::Layout::kPanels;
  // An audit of a layer without loss computes it exactly.
  bool predicts = false, skips = model.audit_shadow != FfnMode::kDense;
  const auto add = [&](FfnMode m) {
    predicts = predicts || m == FfnMode::kSign || m == FfnMode::kLowRank;
    skips = skips || m != FfnMode::kDense;
  };
  add(mode);
  std::for_each(also.begin(), also.end(), add);
  const bool gated = model.config.architecture->gated;
  const model::Layout first = predicts ? kRows : kPanels;
  model::LayerWeights& w = model.weights->layers[layer];
  model::SetLayout(w.gate, first, *model.pool);
  model::SetLayout(w.up, !gated ? first : skips ? kRows : kPanels, *model.pool);
}

Status ChooseModes(LoadedModel& model, const ModeChoice& choice) {
  return Tuner(model, choice).Run();
}

}  // namespace thermocline::load
