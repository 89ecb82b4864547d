#include "engine/load/mode_tuner.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "engine/base/log.h"

namespace thermocline::load {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPrompt = 16, kDecode = 16, kRepetitions = 5;

// Bytes a token reads in a mode: `live` and `predicted` are shares of the neurons.
double BytesOf(const LoadedModel& model, std::size_t layer, FfnMode mode, double live,
               double predicted) {
  const model::LayerWeights& w = model.weights->layers[layer];
  const auto bytes = [](const model::NeuronMatrix& m) {
    return static_cast<double>(m.linear.weight.bytes());
  };
  const bool gated = model.config.architecture->gated;
  const double first = bytes(predictor::DecidingMatrix(w)), second = gated ? bytes(w.up) : 0;
  const double down = static_cast<double>(w.down.weight.bytes()),
               down_rows = static_cast<double>(w.down_rows.bytes());
  if (mode == FfnMode::kDense) return first + second + down + down_rows;
  const double rest = live * (second + down_rows) + down;
  if (mode == FfnMode::kExact) return first + rest;
  const predictor::LayerPredictors& p = model.predictors->layers[layer];
  const double planes =
      static_cast<double>(mode == FfnMode::kSign ? p.sign->bytes() : p.low_rank->bytes());
  return planes + predicted * first + rest;
}

class Tuner {
 public:
  Tuner(LoadedModel& model, const ModeChoice& choice)
      : model_(model),
        choice_(choice),
        shares_(model.weights->layers.size()),
        probe_(shares_.size() / 2) {}

  Status Run() {
    if (!model::HasTrueZeros(model_.config.hidden_act)) return OkStatus();  // dense
    ASSIGN_OR_RETURN(const auto cache, model_.MakeCache(kPrompt + kDecode + 1));
    transformer_ = model_.MakeTransformer(kPrompt, kPrompt + kDecode + 1);
    RETURN_IF_ERROR(Decode(*cache));
    std::map<FfnMode, double> cost;  // seconds a byte
    for (const FfnMode mode : Candidates()) cost[mode] = TimeProbe(mode) / Bytes(probe_, mode);
    for (std::size_t l = 0; l < shares_.size(); ++l) Choose(l, cost);
    return OkStatus();
  }

 private:
  std::vector<FfnMode> Candidates() const {
    std::vector<FfnMode> all = {FfnMode::kDense, FfnMode::kExact};
    all.insert(all.end(), choice_.candidates.begin(), choice_.candidates.end());
    return all;
  }

  // Keeps the share of live neurons of every layer and an input of the probed one.
  Status Decode(nn::KvCache& cache) {
    std::vector<int> prompt(kPrompt);
    for (int i = 0; i < kPrompt; ++i) prompt[i] = ((i * 7919 + 13) % model_.config.vocab_size);
    ASSIGN_OR_RETURN(auto logits,
                     transformer_->Forward(prompt, cache, exec::Transformer::Logits::kLast,
                                           exec::Transformer::Step::kPrefill));
    for (std::size_t l = 0; l < shares_.size(); ++l)
      transformer_->ffn().policy(static_cast<int>(l)).mode = FfnMode::kExact;
    for (int i = 0; i < kDecode; ++i) {
      const int token =
          static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      ASSIGN_OR_RETURN(logits, transformer_->Forward(std::span(&token, 1), cache,
                                                     exec::Transformer::Logits::kLast));
    }
    const double neurons = static_cast<double>(model_.config.intermediate_size) * kDecode;
    for (std::size_t l = 0; l < shares_.size(); ++l) {
      const ffn::FfnCounters& c = transformer_->ffn().counters(static_cast<int>(l));
      shares_[l] =
          static_cast<double>(model_.config.architecture->gated ? c.up_rows : c.down_rows) /
          neurons;
    }
    return OkStatus();
  }

  double TimeProbe(FfnMode mode) {
    UseLayoutsOf(mode, probe_, model_, choice_.also);
    const int layer = static_cast<int>(probe_);
    transformer_->ffn().policy(layer).mode = mode;
    double best = 1e9;
    for (int r = 0; r < kRepetitions; ++r) {
      const auto begin = Clock::now();
      CHECK(transformer_->ProbeFfn(layer).ok());  // everything is in memory
      best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
    }
    return best;
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
    return BytesOf(model_, layer, mode, shares_[layer], predicted);
  }

  void Choose(std::size_t layer, const std::map<FfnMode, double>& cost) {
    FfnMode best = FfnMode::kDense;
    double least = 1e9;
    for (const FfnMode mode : Candidates()) {
      const double seconds = cost.at(mode) * Bytes(layer, mode);
      if (seconds >= least) continue;
      least = seconds;
      best = mode;
    }
    UseLayoutsOf(best, layer, model_, choice_.also);
    model_.ffn_modes[layer] = best;
  }

  LoadedModel& model_;
  const ModeChoice& choice_;
  std::vector<double> shares_;  // of live neurons, by layer
  const std::size_t probe_;     // layer
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
