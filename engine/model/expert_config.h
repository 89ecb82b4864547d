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

// The input of a router.
enum class RouterInput {
  kHidden,          // the network's, which is normed
  kResidualBefore,  // the residual at the layer's entry, without norm
  kNormedResidual,  // the residual before the network, normed without weights, over the root of D
};

struct RouterConfig {
  Gating gating = Gating::kSoftmax;
  bool normalise = false;    // weights of the chosen experts are scaled to a sum of 1
  double norm_min = 0;       // lower bound of the divisor
  double scale = 1;          // factor of the weights
  bool on_input = false;     // weights multiply an expert's input instead of its output
  bool choice_bias = false;  // selection adds a bias, which the file must have
  RouterInput input = RouterInput::kHidden;
  int groups = 1;  // experts are chosen from the best `groups_used` of these groups
  int groups_used = 1;
  GroupScore group_score = GroupScore::kTopTwo;
};

struct ExpertConfig {
  int num_experts = 0;               // E; 0: the model is no mixture
  int num_experts_per_tok = 0;       // K
  int intermediate_size = 0;         // neurons of an expert
  int shared_intermediate_size = 0;  // of the shared expert; 0: none
  bool shared_gated = false;         // times sigmoid(switch . x)
  bool shared_averaged = false;   // the output is the mean of the experts' sum and the shared one
  int first_layer = 0;            // earlier layers are dense
  int step = 1;                   // from there on, layers il with (il + 1) % step == 0
  std::vector<bool> layers = {};  // [L] layers with experts, instead; empty: as above
  RouterConfig router;

  bool any() const { return num_experts > 0; }
  // Returns the factor of the experts' sum and of the shared expert's output.
  float PartScale() const { return shared_averaged && shared_intermediate_size > 0 ? 0.5F : 1.0F; }
  bool InLayer(int layer) const {
    if (!any() || !layers.empty()) return any() && layers[layer];
    return layer >= first_layer && step > 0 && (layer + 1) % step == 0;
  }
};

}  // namespace thermocline::model
