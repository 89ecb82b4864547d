#include "tools/train/held_out_loss.h"

#include <algorithm>

#include "engine/base/index.h"
#include "engine/sampling/sampler.h"

namespace thermocline::tools {

HeldOutLoss::HeldOutLoss(load::LoadedModel& model, const std::vector<Window>& windows)
    : model_(model), windows_(windows) {
  model_.SetRows();
}

Result<double> HeldOutLoss::Dense() {
  return Measure(std::vector<FfnMode>(model_.weights->layers.size(), FfnMode::kDense));
}

Result<double> HeldOutLoss::Predicted(const predictor::SideCar& side_car, int layer) {
  predictor::SideCar wanted = side_car;
  std::vector<FfnMode> modes(wanted.layers.size(), FfnMode::kDense);
  for (std::size_t l = 0; l < modes.size(); ++l) {
    const bool here = layer < 0 || static_cast<std::size_t>(layer) == l;
    if (here && wanted.layers[l].low_rank.has_value()) modes[l] = FfnMode::kLowRank;
  }
  auto predictors = std::make_unique<predictor::Predictors>();
  predictors->layers.resize(modes.size());
  RETURN_IF_ERROR(
      predictor::AddLowRankPredictors(model_.config, *model_.weights, &wanted, *predictors));
  model_.predictors = std::move(predictors);
  return Measure(modes);
}

Result<double> HeldOutLoss::Measure(const std::vector<FfnMode>& modes) {
  int longest = 1;
  for (const Window& window : windows_) longest = std::max(longest, base::IntSize(window));
  model_.ffn_modes = modes;
  constexpr int kChunk = ffn::kSparseTokensMax;
  const auto transformer = model_.MakeTransformer(kChunk, longest, kChunk);
  ASSIGN_OR_RETURN(const auto cache, model_.MakeCache(longest));
  const std::size_t vocab = model_.config.vocab_size;
  double loss = 0;
  std::int64_t scored = 0;
  for (const Window& window : windows_) {
    cache->Clear();
    for (std::size_t at = 0; at + 1 < window.size(); at += kChunk) {
      const std::size_t count = std::min<std::size_t>(kChunk, window.size() - 1 - at);
      ASSIGN_OR_RETURN(
          const auto logits,
          transformer->Forward(std::span(window).subspan(at, count), *cache,
                               exec::Transformer::Logits::kAll, exec::Transformer::Step::kDecode));
      for (std::size_t i = 0; i < count; ++i)
        loss -= sampling::LogProbability(logits.subspan(i * vocab, vocab), window[at + i + 1]);
      scored += count;
    }
  }
  return loss / static_cast<double>(std::max<std::int64_t>(1, scored));
}

}  // namespace thermocline::tools
