#include "engine/ffn/flash_experts.h"

#include <algorithm>
#include <array>

#include "engine/base/index.h"
#include "engine/nn/normalize.h"

namespace thermocline::ffn {

FlashExperts::FlashExperts(const FfnContext& context, store::NeuronStore& store, bool read_ahead)
    : context_(context),
      store_(store),
      read_ahead_(read_ahead),
      router_(context.config.experts),
      masks_of_(context.config.experts.num_experts),
      logits_(context.config.experts.num_experts),
      guessed_(context.config.experts.num_experts_per_tok) {
  ids_.reserve(masks_of_.size());
  masks_.reserve(masks_of_.size());
  guess_.Resize(1, context.config.hidden_size);
}

std::size_t FlashExperts::Bytes(const model::ModelConfig& config) {
  return nn::ActivationBuffer::Bytes(1, config.hidden_size) +
         base::Area(config.experts.num_experts, 32) + 4096;
}

void FlashExperts::Request(int layer, std::span<const ChosenExpert> chosen, int tokens) {
  if (tokens == 1) Judge(layer, chosen);
  guessed_layer_ = -1;
  const std::size_t k = guessed_.size();
  std::fill(masks_of_.begin(), masks_of_.end(), std::uint16_t{0});
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const std::size_t bit = std::min<std::size_t>(i / k, kSparseTokensMax - 1);
    masks_of_[chosen[i].expert] |= static_cast<std::uint16_t>(1U << bit);
  }
  ids_.clear();
  masks_.clear();
  for (int e = 0; e < base::IntSize(masks_of_); ++e) {
    if (masks_of_[e] == 0 || IsHot(layer, e)) continue;
    ids_.push_back(e);
    masks_.push_back(masks_of_[e]);
  }
  if (tokens > kSparseTokensMax) return store_.RequestForPrompt(layer, ids_);
  store_.Request(layer, ids_, masks_);
}

void FlashExperts::Judge(int layer, std::span<const ChosenExpert> chosen) {
  if (layer != guessed_layer_) return;
  guesses_.guessed += base::IntSize(guessed_);
  for (const ChosenExpert& each : chosen)
    guesses_.right += std::any_of(guessed_.begin(), guessed_.end(), [&](const ChosenExpert& guess) {
      return guess.expert == each.expert;
    });
}

void FlashExperts::ReadAhead(int layer, const float* residual) {
  const model::ModelConfig& c = context_.config;
  const int next = layer + 1;
  if (!read_ahead_ || residual == nullptr || next >= c.num_hidden_layers ||
      !c.experts.InLayer(next))
    return;
  const model::LayerWeights& w = context_.layer(next);
  MakeRouterInput(context_, next, residual, guess_.x.data());
  const std::array product = {nn::Product{&w.experts.router, logits_.data()}};
  context_.multiplier.Multiply(product, guess_.view(), 1);
  router_.Choose(logits_, w.experts.choice_bias, guessed_, w.experts.weight_scale);
  guessed_layer_ = next;
  ids_.clear();
  for (const ChosenExpert& each : guessed_)
    if (!IsHot(next, each.expert)) ids_.push_back(each.expert);
  store_.ReadAhead(next, ids_);
}

ExpertPlace FlashExperts::PlaceOf(int layer, int expert) const {
  const std::uint8_t* at = store_.where(layer)[expert];
  return {.gate = at, .up = at + store_.up_ahead(), .down = at + store_.down_ahead()};
}

}  // namespace thermocline::ffn
