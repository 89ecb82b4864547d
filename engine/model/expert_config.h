// Mixtures of experts as data: the layers that have them, and the router's selection.
//
//   z = W x;  p = gating(z);  I = the K experts with the largest p + choice bias;  w = p[I]
//   w /= max(sum w, norm_min) where normalised;  y = scale * sum_i w_i expert_i(x)  (+ shared(x))
// Source: Shazeer et al. 2017; DeepSeek-V3 (bias used for selection only, groups of experts).
#pragma once

#include <vector>

namespace thermocline::model {

// The function that turns a router's logits into weights.
enum class Gating {
  kSoftmax,          // over all experts
  kSigmoid,          // of each logit
  kSoftmaxOfChosen,  // over the chosen experts' logits
};

// The score of a group of experts, if experts are chosen from the best groups.
enum class GroupScore { kMax, kTopTwo };

struct RouterConfig {
  Gating gating = Gating::kSoftmax;
  bool normalise = false;         // weights of the chosen experts are scaled to a sum of 1
  double norm_min = 0;            // lower bound of the divisor
  double scale = 1;               // factor of the weights
  bool choice_bias = false;       // selection adds a bias, which the file must have
  bool before_attention = false;  // its input is the residual at the layer's entry, without norm
  int groups = 1;                 // experts are chosen from the best `groups_used` of these groups
  int groups_used = 1;
  GroupScore group_score = GroupScore::kTopTwo;
};

struct ExpertConfig {
  int num_experts = 0;               // E; 0: the model is no mixture
  int num_experts_per_tok = 0;       // K
  int intermediate_size = 0;         // neurons of an expert
  int shared_intermediate_size = 0;  // of the shared expert; 0: none
  bool shared_gated = false;         // times sigmoid(switch . x)
  int first_layer = 0;               // earlier layers are dense
  int step = 1;                      // from there on, layers il with (il + 1) % step == 0
  std::vector<bool> layers = {};     // [L] layers with experts, instead; empty: as above
  RouterConfig router;

  bool any() const { return num_experts > 0; }
  bool InLayer(int layer) const {
    if (!any() || !layers.empty()) return any() && layers[layer];
    return layer >= first_layer && step > 0 && (layer + 1) % step == 0;
  }
};

}  // namespace thermocline::model
