#include "engine/sched/text_pooling.h"

#include <cmath>

namespace thermocline::sched {

void TextPooling::Begin(Pooling pooling, int size) {
  pooling_ = pooling;
  sum_.assign(size, 0);
  tokens_ = 0;
}

void TextPooling::Add(std::span<const float> states) {
  const std::size_t size = sum_.size();
  for (std::size_t at = 0; at < states.size(); at += size, ++tokens_) {
    const bool first = pooling_ == Pooling::kFirst || pooling_ == Pooling::kRank;
    if (first && tokens_ > 0) continue;
    for (std::size_t i = 0; i < size; ++i)
      sum_[i] = (pooling_ == Pooling::kMean ? sum_[i] : 0) + double{states[at + i]};
  }
}

std::vector<float> TextPooling::Take() {
  double squares = 0;
  for (const double value : sum_) squares += value * value;
  const double scale = squares > 0 ? 1 / std::sqrt(squares) : 0;
  std::vector<float> out;
  out.reserve(sum_.size());
  for (const double value : sum_) out.push_back(static_cast<float>(value * scale));
  return out;
}

std::vector<float> TextPooling::Mean() const {
  std::vector<float> out;
  out.reserve(sum_.size());
  for (const double value : sum_)
    out.push_back(static_cast<float>(value / static_cast<double>(tokens_)));
  return out;
}

}  // namespace thermocline::sched
