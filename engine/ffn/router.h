// Chooses the experts of a token and their weights.
//
// model/expert_config.h defines the computation. It runs in scalar floats, one token after the
// other, so that a token's choice does not depend on the other tokens; ties go to the lower number.
#pragma once

#include <span>
#include <vector>

#include "engine/ffn/ffn_context.h"
#include "engine/model/expert_config.h"

namespace thermocline::ffn {

struct ChosenExpert {
  int expert;
  float weight;
};

// One thread at a time. Allocates nothing after construction.
// out [D] = the input of the layer's router, by its kind: `residual` [D] at the layer's entry, or
// before its network.
void MakeRouterInput(const FfnContext& context, int layer, const float* residual, float* out);

class Router {
 public:
  // Requires: `config` has experts.
  explicit Router(const model::ExpertConfig& config);

  // `logits` [E]; `choice_bias`, `weight_scale` [E] or null. Fills `out` [K], by ascending expert.
  void Choose(std::span<const float> logits, const float* choice_bias, std::span<ChosenExpert> out,
              const float* weight_scale = nullptr);

 private:
  // Computes the gates and scores of all experts, in gates_ and scores_; the choice is by score.
  void Score(std::span<const float> logits, const float* choice_bias);
  // Keeps only the scores of the best groups.
  void KeepBestGroups();
  float GroupScoreOf(std::span<const float> scores) const;
  void Weigh(std::span<ChosenExpert> chosen, const float* weight_scale) const;

  const model::ExpertConfig config_;
  std::vector<float> gates_;   // [E]
  std::vector<float> scores_;  // [E] determine the choice
  std::vector<float> groups_;  // [groups]
};

}  // namespace thermocline::ffn
