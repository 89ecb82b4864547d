#include "engine/exec/sampler.h"

#include <algorithm>
#include <cmath>

namespace thermocline {

Status ValidateSampling(const SamplingParams& p) {
  const auto check = [](const char* field, double value, double min, double max) {
    if (value >= min && value <= max) return OkStatus();
    return base::InvalidArgument(field, " is ", value, "; it must lie in [", min, ", ", max, "]");
  };
  RETURN_IF_ERROR(check("temperature", p.temperature, 0, 100));
  RETURN_IF_ERROR(check("top_k", p.top_k, 0, 1e9));
  RETURN_IF_ERROR(check("top_p", p.top_p, 0, 1));
  RETURN_IF_ERROR(check("min_p", p.min_p, 0, 1));
  RETURN_IF_ERROR(check("repetition_penalty", p.repetition_penalty, 0.01, 100));
  RETURN_IF_ERROR(check("presence_penalty", p.presence_penalty, -2, 2));
  return check("frequency_penalty", p.frequency_penalty, -2, 2);
}

}  // namespace thermocline

namespace thermocline::exec {

Sampler::Sampler(int vocab_size, int tokens_max)
    : logits_(static_cast<std::size_t>(vocab_size)),
      candidates_(logits_.size()),
      weights_(logits_.size()),
      generated_counts_(logits_.size()),
      in_prompt_(logits_.size()) {
  touched_.reserve(logits_.size());
  distribution_.Reserve(logits_.size());
  params_.logit_bias.reserve(logits_.size());
  accepted_.reserve(static_cast<std::size_t>(tokens_max));
}

void Sampler::Begin(const SamplingParams& params, std::span<const int> prompt) {
  for (const int token : touched_) {
    generated_counts_[static_cast<std::size_t>(token)] = 0;
    in_prompt_[static_cast<std::size_t>(token)] = false;
  }
  touched_.clear();
  accepted_.clear();
  params_ = params;
  chance_ = SeededChance(params.seed);
  if (params.repetition_penalty == 1.0) return;
  for (const int token : prompt) {
    const auto at = static_cast<std::size_t>(token);
    if (in_prompt_[at]) continue;
    in_prompt_[at] = true;
    touched_.push_back(token);
  }
}

void Sampler::Accept(int token) {
  const auto at = static_cast<std::size_t>(token);
  if (generated_counts_[at]++ == 0 && !in_prompt_[at]) touched_.push_back(token);
  accepted_.push_back(token);
}

void Sampler::Retract() {
  const int token = accepted_.back();
  const auto at = static_cast<std::size_t>(token);
  accepted_.pop_back();
  if (--generated_counts_[at] > 0 || in_prompt_[at]) return;
  // What came last is mostly at the end.
  const auto entry = std::find(touched_.rbegin(), touched_.rend(), token);
  *entry = touched_.back();
  touched_.pop_back();
}

int Sampler::Sample(std::span<const float> logits, int position) {
  return chance_.Pick(Compute(logits), static_cast<std::uint64_t>(position), Stream::kToken);
}

const Distribution& Sampler::Compute(std::span<const float> logits) {
  CHECK_EQ(logits.size(), logits_.size());
  std::copy(logits.begin(), logits.end(), logits_.begin());
  Adjust();
  distribution_.Clear();
  if (params_.temperature == 0) {
    const auto best = std::max_element(logits_.begin(), logits_.end());
    distribution_.Add(static_cast<int>(best - logits_.begin()), 1);
  } else {
    KeepTop();
  }
  return distribution_;
}

int Sampler::Top(int count, Scored* out) const {
  int held = 0;
  for (std::size_t i = 0; i < logits_.size(); ++i) {
    if (held == count && !(logits_[i] > out[held - 1].logit)) continue;
    int at = held == count ? held - 1 : held++;
    for (; at > 0 && logits_[i] > out[at - 1].logit; --at) out[at] = out[at - 1];
    out[at] = {logits_[i], static_cast<int>(i)};
  }
  return held;
}

void Sampler::Adjust() {
  for (const auto& [token, bias] : params_.logit_bias)
    logits_[static_cast<std::size_t>(token)] += bias;
  const auto repetition = static_cast<float>(params_.repetition_penalty);
  for (const int token : touched_) {
    const auto at = static_cast<std::size_t>(token);
    float& logit = logits_[at];
    if (repetition != 1.0F) logit = logit > 0 ? logit / repetition : logit * repetition;
    if (generated_counts_[at] > 0) {
      logit -= static_cast<float>(params_.presence_penalty +
                                  params_.frequency_penalty * generated_counts_[at]);
    }
  }
}

// Fills distribution_. Sorts no further than it must: the nucleus of a confident model is a handful
// of a vocabulary of 50,000.
void Sampler::KeepTop() {
  for (std::size_t i = 0; i < logits_.size(); ++i)
    candidates_[i] = {logits_[i], static_cast<int>(i)};
  std::size_t kept = candidates_.size();
  if (params_.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(params_.top_k));
  if (kept < candidates_.size()) SortFirst(0, kept);
  const double max = *std::max_element(logits_.begin(), logits_.end());
  double total = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    weights_[i] = std::exp((candidates_[i].logit - max) / params_.temperature);
    total += weights_[i];
  }
  if (params_.top_p < 1) kept = KeepNucleus(kept, params_.top_p * total, max);
  // The highest weight is exp(0) = 1.
  for (std::size_t i = 0; i < kept; ++i) {
    if (weights_[i] > 0 && weights_[i] >= params_.min_p)
      distribution_.Add(candidates_[i].token, weights_[i]);
  }
  if (distribution_.size() == 0) distribution_.Add(candidates_[0].token, 1);  // NaN logits
}

void Sampler::SortFirst(std::size_t sorted, std::size_t wanted) {
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
  };
  const auto at = [this](std::size_t i) {
    return candidates_.begin() + static_cast<std::ptrdiff_t>(i);
  };
  std::partial_sort(at(sorted), at(wanted), candidates_.end(), before);
}

// The fewest of the first `kept` candidates whose weights reach `mass`, most probable first.
std::size_t Sampler::KeepNucleus(std::size_t kept, double mass, double max) {
  const bool already_sorted = kept < candidates_.size();
  std::size_t sorted = already_sorted ? kept : 0, taken = 0;
  double sum = 0;
  while (taken < kept && (taken == 0 || sum < mass)) {
    if (taken == sorted) {
      const std::size_t wanted = std::min(kept, std::max<std::size_t>(64, sorted * 8));
      SortFirst(sorted, wanted);
      sorted = wanted;
    }
    weights_[taken] = std::exp((candidates_[taken].logit - max) / params_.temperature);
    sum += weights_[taken++];
  }
  return taken;
}

double LogProbability(std::span<const float> logits, int token) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const float logit : logits) total += std::exp(logit - max);
  return logits[static_cast<std::size_t>(token)] - max - std::log(total);
}

}  // namespace thermocline::exec
