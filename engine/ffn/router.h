// Chooses the experts of a token and their weights.
//
// model/expert_config.h defines the computation. It runs in scalar floats, one token after the
// other, so that a token's choice does not depend on the other tokens; ties go to the lower number.
#pragma once

#include <span>
#include <vector>

#include "engine/model/expert_config.h"

namespace thermocline::ffn {

struct ChosenExpert {
  int expert;
  float weight;
};

// One thread at a time. Allocates nothing after construction.
class Router {
 public:
  // Requires: `config` has experts.
  explicit Router(const model::ExpertConfig& config);

  // `logits` [E]; `choice_bias` [E] or null. Fills `out` [K], by ascending expert.
  void Choose(std::span<const float> logits, const float* choice_bias, std::span<ChosenExpert> out);

 private:
  // Computes the gates and scores of all experts, in gates_ and scores_; the choice is by score.
  void Score(std::span<const float> logits, const float* choice_bias);
  // Keeps only the scores of the best groups.
  void KeepBestGroups();
  float GroupScoreOf(std::span<const float> scores) const;
  void Weigh(std::span<ChosenExpert> chosen) const;

  const model::ExpertConfig config_;
  std::vector<float> gates_;   // [E]
  std::vector<float> scores_;  // [E] determine the choice
  std::vector<float> groups_;  // [groups]
};

}  // namespace thermocline::ffn
