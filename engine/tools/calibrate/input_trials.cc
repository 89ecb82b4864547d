#include "engine/tools/calibrate/input_trials.h"

#include <algorithm>
#include <cmath>

#include "engine/sampling/sampler.h"
#include "engine/tools/common/divergence.h"

namespace thermocline::tools {
namespace {

constexpr int kChunk = ffn::kSparseTokensMax;  // tokens computed at once

}  // namespace

InputTrials::InputTrials(load::LoadedModel& model, int window)
    : model_(model), window_(window), whole_(model.weights->layers.size()) {
  model_.predictors->layers.resize(whole_.size());
  Use(whole_);
  transformer_ = model_.MakeTransformer(kChunk, window, kChunk);
}

void InputTrials::SetMode(FfnMode mode) {
  for (std::size_t l = 0; l < whole_.size(); ++l)
    transformer_->ffn().policy(static_cast<int>(l)).mode = mode;
}

void InputTrials::Use(const InputRuleSet& rules) {
  for (std::size_t l = 0; l < rules.size(); ++l) model_.predictors->layers[l].inputs = rules[l];
}

Result<std::span<const float>> InputTrials::Logits(std::span<const int> tokens,
                                                   nn::KvCache& cache) {
  return transformer_->Forward(tokens, cache, exec::Transformer::Logits::kAll);
}

Result<std::vector<InputScore>> InputTrials::Run(std::span<const Window> windows,
                                                 std::span<const InputRuleSet> sets) {
  const std::size_t vocab = model_.config.vocab_size;
  std::vector<std::unique_ptr<nn::KvCache>> caches;
  for (std::size_t i = 0; i <= sets.size(); ++i) {
    ASSIGN_OR_RETURN(caches.emplace_back(), model_.MakeCache(window_));
  }
  std::vector<double> kl(sets.size()), loss(sets.size());
  double whole_loss = 0, positions = 0, scored = 0;
  std::vector<float> whole;
  for (const Window& window : windows) {
    for (const auto& cache : caches) cache->SetLength(0);
    for (std::size_t at = 0; at < window.size(); at += kChunk) {
      const auto tokens =
          std::span(window).subspan(at, std::min<std::size_t>(kChunk, window.size() - at));
      SetMode(FfnMode::kDense);
      ASSIGN_OR_RETURN(const auto logits, Logits(tokens, *caches.back()));
      whole.assign(logits.begin(), logits.end());
      const auto loss_of = [&](std::span<const float> all, std::size_t i) {
        return at + i + 1 < window.size()
                   ? -sampling::LogProbability(all.subspan(i * vocab, vocab), window[at + i + 1])
                   : 0.0;
      };
      for (std::size_t i = 0; i < tokens.size(); ++i) whole_loss += loss_of(whole, i);
      positions += static_cast<double>(tokens.size());
      scored += static_cast<double>(tokens.size() - (at + tokens.size() == window.size() ? 1 : 0));
      SetMode(FfnMode::kInputs);
      for (std::size_t set = 0; set < sets.size(); ++set) {
        Use(sets[set]);
        ASSIGN_OR_RETURN(const auto cut, Logits(tokens, *caches[set]));
        std::vector<double> each(tokens.size());
        model_.pool->Run(static_cast<int>(tokens.size()), [&](int i, int) {
          const auto row = static_cast<std::size_t>(i) * vocab;
          each[i] = Divergence(std::span(whole).subspan(row, vocab), cut.subspan(row, vocab));
        });
        for (std::size_t i = 0; i < tokens.size(); ++i) {
          kl[set] += each[i];
          loss[set] += loss_of(cut, i);
        }
      }
    }
  }
  std::vector<InputScore> scores;
  for (std::size_t i = 0; i < sets.size(); ++i)
    scores.push_back(
        {.kl = kl[i] / std::max(1.0, positions),
         .perplexity_ratio = std::exp((loss[i] - whole_loss) / std::max(1.0, scored))});
  return scores;
}

}  // namespace thermocline::tools
