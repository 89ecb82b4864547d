#include "engine/ffn/router.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/index.h"
#include "engine/base/log.h"
#include "engine/nn/for_tokens.h"
#include "engine/nn/gate_functions.h"
#include "engine/nn/normalize.h"

namespace thermocline::ffn {
namespace {

using model::Gating;

// Scores of taken experts, and of excluded ones: not in the best groups, or NaN. Taken ones are
// lower, so that an expert is never chosen twice.
constexpr float kTaken = -std::numeric_limits<float>::infinity();
constexpr float kOut = std::numeric_limits<float>::lowest();

void Softmax(std::span<float> values) {
  const float max = *std::max_element(values.begin(), values.end());
  float sum = 0;
  for (float& value : values) sum += value = std::exp(value - max);
  for (float& value : values) value /= sum;
}

// Index of the largest score, the first among equals; marks it as taken.
int TakeLargest(std::span<float> scores) {
  const auto largest = std::max_element(scores.begin(), scores.end());
  *largest = kTaken;
  return static_cast<int>(largest - scores.begin());
}

}  // namespace

Router::Router(const model::ExpertConfig& config)
    : config_(config),
      gates_(config.num_experts),
      scores_(config.num_experts),
      groups_(config.router.groups) {}

void MakeRouterInput(const FfnContext& context, int layer, const float* residual, float* out) {
  const model::ModelConfig& c = context.config;
  const model::LayerWeights& w = context.layer(layer);
  const int d = c.hidden_size;
  switch (c.experts.router.input) {
    case model::RouterInput::kHidden:
      return nn::Normalize(context.ops, c, w.ffn_norm, residual, d, out);
    case model::RouterInput::kResidualBefore:
      std::copy_n(residual, d, out);
      return;
    case model::RouterInput::kNormedResidual:
      nn::Normalize(context.ops, c, {.weight = w.experts.router_scale}, residual, d, out);
      return nn::Scale(1 / std::sqrt(d), out, d);
  }
}

void Router::Choose(std::span<const float> logits, const float* choice_bias,
                    std::span<ChosenExpert> out, const float* weight_scale) {
  CHECK_EQ(base::IntSize(out), config_.num_experts_per_tok);
  Score(logits, choice_bias);
  if (config_.router.groups > 1) KeepBestGroups();
  for (ChosenExpert& chosen : out) {
    chosen.expert = TakeLargest(scores_);
    chosen.weight = gates_[chosen.expert];
  }
  Weigh(out, weight_scale);
  std::sort(out.begin(), out.end(),
            [](const ChosenExpert& a, const ChosenExpert& b) { return a.expert < b.expert; });
}

void Router::Score(std::span<const float> logits, const float* choice_bias) {
  std::copy(logits.begin(), logits.end(), gates_.begin());
  if (config_.router.gating == Gating::kSoftmax) Softmax(gates_);
  for (float& gate : gates_) {
    if (config_.router.gating == Gating::kSigmoid) gate = nn::Sigmoid(gate);
  }
  for (std::size_t e = 0; e < scores_.size(); ++e)
    scores_[e] = std::max(kOut, gates_[e] + (choice_bias != nullptr ? choice_bias[e] : 0.0F));
}

float Router::GroupScoreOf(std::span<const float> scores) const {
  float first = kOut, second = kOut;
  for (const float score : scores) {
    second = std::max(second, std::min(first, score));
    first = std::max(first, score);
  }
  const bool one = config_.router.group_score == model::GroupScore::kMax || scores.size() < 2;
  return one ? first : first + second;
}

void Router::KeepBestGroups() {
  const std::size_t size = scores_.size() / groups_.size();
  for (std::size_t g = 0; g < groups_.size(); ++g)
    groups_[g] = GroupScoreOf(std::span(scores_).subspan(g * size, size));
  for (int i = 0; i < config_.router.groups_used; ++i) TakeLargest(groups_);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const auto group = std::span(scores_).subspan(g * size, size);
    if (groups_[g] != kTaken) std::fill(group.begin(), group.end(), kOut);
  }
}

void Router::Weigh(std::span<ChosenExpert> chosen, const float* weight_scale) const {
  const model::RouterConfig& router = config_.router;
  const bool softmax = router.gating == Gating::kSoftmaxOfChosen;
  float max = kOut, sum = 0;
  for (const ChosenExpert& c : chosen) max = std::max(max, c.weight);
  for (ChosenExpert& c : chosen) {
    if (softmax) c.weight = std::exp(c.weight - max);
    sum += c.weight;
  }
  const bool divides = softmax || router.normalise;
  const float divisor =
      divides ? std::max(sum, softmax ? 0.0F : static_cast<float>(router.norm_min)) : 1.0F;
  const float scale = static_cast<float>(router.scale) * config_.PartScale();
  for (ChosenExpert& c : chosen) {
    c.weight = c.weight / divisor * scale;
    if (weight_scale != nullptr) c.weight *= weight_scale[c.expert];
  }
}

}  // namespace thermocline::ffn
