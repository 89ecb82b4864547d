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

double UniformAt(std::uint64_t seed, std::uint64_t position) {
  std::uint64_t z = seed + (position + 1) * 0x9E3779B97F4A7C15U;
  for (int round = 0; round < 2; ++round) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    z ^= z >> 31;
  }
  return static_cast<double>(z >> 11) * 0x1p-53;
}

Sampler::Sampler(int vocab_size)
    : logits_(static_cast<std::size_t>(vocab_size)),
      candidates_(logits_.size()),
      weights_(logits_.size()),
      generated_counts_(logits_.size()),
      in_prompt_(logits_.size()) {
  touched_.reserve(logits_.size());
}

void Sampler::Begin(const SamplingParams& params, std::span<const int> prompt) {
  for (const int token : touched_) {
    generated_counts_[static_cast<std::size_t>(token)] = 0;
    in_prompt_[static_cast<std::size_t>(token)] = false;
  }
  touched_.clear();
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
}

int Sampler::Sample(std::span<const float> logits, const SamplingParams& params, int position) {
  CHECK_EQ(logits.size(), logits_.size());
  std::copy(logits.begin(), logits.end(), logits_.begin());
  Adjust(params);
  if (params.temperature == 0) {
    return static_cast<int>(std::max_element(logits_.begin(), logits_.end()) - logits_.begin());
  }
  const std::size_t kept = KeepTop(params);
  return Draw(kept, UniformAt(params.seed, static_cast<std::uint64_t>(position)));
}

void Sampler::Adjust(const SamplingParams& params) {
  for (const auto& [token, bias] : params.logit_bias)
    logits_[static_cast<std::size_t>(token)] += bias;
  const auto repetition = static_cast<float>(params.repetition_penalty);
  for (const int token : touched_) {
    const auto at = static_cast<std::size_t>(token);
    float& logit = logits_[at];
    if (repetition != 1.0F) logit = logit > 0 ? logit / repetition : logit * repetition;
    if (generated_counts_[at] > 0) {
      logit -= static_cast<float>(params.presence_penalty +
                                  params.frequency_penalty * generated_counts_[at]);
    }
  }
}

// Fills candidates_ and weights_; returns how many of them are in the draw. Sorts no further than
// it must: the nucleus of a confident model is a handful of a vocabulary of 50,000.
std::size_t Sampler::KeepTop(const SamplingParams& params) {
  for (std::size_t i = 0; i < logits_.size(); ++i)
    candidates_[i] = {logits_[i], static_cast<int>(i)};
  std::size_t kept = candidates_.size();
  if (params.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(params.top_k));
  if (kept < candidates_.size()) SortFirst(0, kept);
  const double max = *std::max_element(logits_.begin(), logits_.end());
  double total = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    weights_[i] = std::exp((candidates_[i].logit - max) / params.temperature);
    total += weights_[i];
  }
  if (params.top_p < 1) kept = KeepNucleus(kept, params.top_p * total, max, params.temperature);
  // The highest weight is exp(0) = 1.
  for (std::size_t i = 0; i < kept; ++i)
    weights_[i] = weights_[i] >= params.min_p ? weights_[i] : 0.0;
  return kept;
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
std::size_t Sampler::KeepNucleus(std::size_t kept, double mass, double max, double temperature) {
  const bool already_sorted = kept < candidates_.size();
  std::size_t sorted = already_sorted ? kept : 0, taken = 0;
  double sum = 0;
  while (taken < kept && (taken == 0 || sum < mass)) {
    if (taken == sorted) {
      const std::size_t wanted = std::min(kept, std::max<std::size_t>(64, sorted * 8));
      SortFirst(sorted, wanted);
      sorted = wanted;
    }
    weights_[taken] = std::exp((candidates_[taken].logit - max) / temperature);
    sum += weights_[taken++];
  }
  return taken;
}

int Sampler::Draw(std::size_t kept, double uniform) const {
  double total = 0;
  for (std::size_t i = 0; i < kept; ++i) total += weights_[i];
  double rest = uniform * total;
  std::size_t last = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    if (weights_[i] == 0) continue;
    last = i;
    rest -= weights_[i];
    if (rest < 0) break;
  }
  return candidates_[last].token;
}

double LogProbability(std::span<const float> logits, int token) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const float logit : logits) total += std::exp(logit - max);
  return logits[static_cast<std::size_t>(token)] - max - std::log(total);
}

}  // namespace thermocline::exec
