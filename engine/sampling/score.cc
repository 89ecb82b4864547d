#include "engine/sampling/score.h"

#include <algorithm>
#include <cmath>

namespace thermocline::sampling {

void ScoreToken(std::span<const float> logits, int token, int top,
                std::vector<TokenChannel::Score>& out) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const float logit : logits) total += std::exp(logit - max);
  const double shift = max + std::log(total);
  const auto score = [&](int id) {
    return TokenChannel::Score{id, static_cast<float>(double{logits[id]} - shift)};
  };
  out.push_back(score(token));
  int first[kLogprobsMax];
  int held = 0;
  for (int id = 0; id < std::ssize(logits); ++id) {
    const auto logit = [&](int of) { return logits[of]; };
    if (held == top && (top == 0 || !(logit(id) > logit(first[held - 1])))) continue;
    int at = held == top ? held - 1 : held++;
    for (; at > 0 && logit(id) > logit(first[at - 1]); --at) first[at] = first[at - 1];
    first[at] = id;
  }
  for (int i = 0; i < held; ++i) out.push_back(score(first[i]));
}

}  // namespace thermocline::sampling
