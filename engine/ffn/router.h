// Which experts a token goes through, and with what weights.
//
// What it computes: model/expert_config.h. In scalar floats, one token after the other, so that a
// token's choice is the same whatever comes with it; ties go to the lower number.
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
  // Computes the gates and scores of all experts, in gates_ and scores_; the scores decide.
  void Score(std::span<const float> logits, const float* choice_bias);
  // Leaves the scores of the best groups only.
  void KeepBestGroups();
  float GroupScoreOf(std::span<const float> scores) const;
  void Weigh(std::span<ChosenExpert> chosen) const;

  const model::ExpertConfig config_;
  std::vector<float> gates_;   // [E]
  std::vector<float> scores_;  // [E] what decides
  std::vector<float> groups_;  // [groups]
};

}  // namespace thermocline::ffn
