// Mixtures of experts as data: which layers have them, and how a router chooses.
//
//   z = W x;  p = gating(z);  I = the K experts with the largest p + choice bias;  w = p[I]
//   w /= max(sum w, norm_min) where normalised;  y = scale * sum_i w_i expert_i(x)  (+ shared(x))
// Source: Shazeer et al. 2017; DeepSeek-V3 (bias that chooses alone, groups of experts).
#pragma once

#include <vector>

namespace thermocline::model {

// The function that turns a router's logits into weights.
enum class Gating {
  kSoftmax,          // over all experts
  kSigmoid,          // of each
  kSoftmaxOfChosen,  // over those chosen, by their logits
};

// The score of a group of experts, where experts are chosen from the best groups.
enum class GroupScore { kMax, kTopTwo };

struct RouterConfig {
  Gating gating = Gating::kSoftmax;
  bool normalise = false;         // weights of the chosen add up to 1
  double norm_min = 0;            // the least sum that they are divided by
  double scale = 1;               // times the weights
  bool choice_bias = false;       // a bias that chooses belongs to it: the file must have one
  bool before_attention = false;  // it sees the residual at the layer's entry, not normed
  int groups = 1;  // experts are chosen from the best `groups_used` of so many groups
  int groups_used = 1;
  GroupScore group_score = GroupScore::kTopTwo;
};

struct ExpertConfig {
  int num_experts = 0;               // E; 0: the model is no mixture
  int num_experts_per_tok = 0;       // K
  int intermediate_size = 0;         // neurons of an expert
  int shared_intermediate_size = 0;  // of what every token passes through besides; 0: none
  bool shared_gated = false;         // times sigmoid(switch . x)
  int first_layer = 0;               // those before are dense
  int step = 1;                      // from there on, layers il with (il + 1) % step == 0
  std::vector<bool> layers = {};     // [L] those that have experts, instead; empty: as above
  RouterConfig router;

  bool any() const { return num_experts > 0; }
  bool InLayer(int layer) const {
    if (!any() || !layers.empty()) return any() && layers[layer];
    return layer >= first_layer && step > 0 && (layer + 1) % step == 0;
  }
};

}  // namespace thermocline::model
