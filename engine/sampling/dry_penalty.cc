#include "engine/sampling/dry_penalty.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace thermocline::sampling {
namespace {

constexpr std::size_t kRepetitionMax = 50;  // as in the original: no power of the base overflows

std::size_t At(int index) { return index; }

}  // namespace

DryPenalty::DryPenalty(int vocab_size, int tokens_max)
    : breaks_(At(vocab_size)), longest_(At(vocab_size)) {
  breakers_.reserve(At(vocab_size));
  matched_.reserve(At(tokens_max));
}

std::size_t DryPenalty::Bytes(int vocab_size, int tokens_max) {
  return At(vocab_size) * 2 * sizeof(int) + At(vocab_size) / 8 + At(tokens_max) * sizeof(int);
}

void DryPenalty::Begin(const SamplingParams& params) {
  for (const int token : breakers_) breaks_[At(token)] = false;
  breakers_.clear();
  params_ = params.dry_multiplier > 0 && params.dry_penalty_last_n != 0 ? &params : nullptr;
  if (!on()) return;
  breakers_.assign(params.dry_breakers.begin(), params.dry_breakers.end());
  for (const int token : breakers_) breaks_[At(token)] = true;
}

void DryPenalty::Apply(std::span<const int> tokens, std::span<float> logits) {
  if (params_->dry_penalty_last_n > 0 && tokens.size() > At(params_->dry_penalty_last_n))
    tokens = tokens.last(At(params_->dry_penalty_last_n));
  const std::size_t count = tokens.size();
  const auto back = [&](std::size_t k) { return At(tokens[count - 1 - k]); };
  std::size_t limit = 0;
  while (limit < std::min(count, kRepetitionMax) && !breaks_[back(limit)]) ++limit;
  if (limit < At(params_->dry_allowed_length)) return;
  Match(tokens, limit);
  for (std::size_t k = 1; k < count; ++k)
    longest_[back(k - 1)] = std::max(longest_[back(k - 1)], matched_[k]);
  for (std::size_t k = 1; k < count; ++k) {
    const std::size_t next = back(k - 1);
    const int repeated = std::exchange(longest_[next], 0);
    if (repeated < params_->dry_allowed_length || breaks_[next]) continue;
    const double power = std::pow(params_->dry_base, repeated - params_->dry_allowed_length);
    logits[next] -= static_cast<float>(params_->dry_multiplier * power);
  }
}

// The Z function of the reversed text, with its first `limit` tokens as the pattern: a window that
// matched the pattern's beginning predicts the matches inside it. Source: Gusfield 1997, section
// 1.4.
void DryPenalty::Match(std::span<const int> tokens, std::size_t limit) {
  const std::size_t count = tokens.size();
  const auto back = [&](std::size_t k) { return tokens[count - 1 - k]; };
  matched_.assign(count, 0);
  std::size_t begin = 0, end = 0;  // of the window that reaches furthest
  for (std::size_t k = 1; k < count; ++k) {
    std::size_t length = k < end ? std::min(end - k, At(matched_[k - begin])) : 0;
    while (length < limit && k + length < count && back(length) == back(k + length)) ++length;
    if (k + length > end) {
      begin = k;
      end = k + length;
    }
    matched_[k] = static_cast<int>(length);
  }
}

}  // namespace thermocline::sampling
