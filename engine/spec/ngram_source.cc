#include "engine/spec/ngram_source.h"

#include <algorithm>
#include <bit>

#include "engine/base/index.h"

namespace thermocline::spec {
namespace {

// Returns the class of a proposal after `length` matching tokens: longer matches are more reliable.
int ConfidenceOf(int length) {
  static constexpr int kFrom[kConfidenceClasses] = {1, 2, 3, 4, 5, 6, 8, 10, 13, 17, 25, 40};
  int level = 0;
  while (level + 1 < kConfidenceClasses && length >= kFrom[level + 1]) ++level;
  return level;
}

}  // namespace

NgramSource::NgramSource(int capacity)
    : heads_(std::bit_ceil(static_cast<std::size_t>(std::max(capacity, 16)))), previous_(capacity) {
  indexed_.reserve(previous_.size());
  std::fill(heads_.begin(), heads_.end(), -1);
}

void NgramSource::Begin(std::span<const int> prompt, const SamplingParams&) {
  indexed_.clear();
  std::fill(heads_.begin(), heads_.end(), -1);
  Index(prompt);
}

std::size_t NgramSource::BucketOf(int first, int second) const {
  const std::uint64_t pair = static_cast<std::uint64_t>(static_cast<std::uint32_t>(first)) << 32 |
                             static_cast<std::uint32_t>(second);
  return (pair * 0x9E3779B97F4A7C15U >> 32) & (heads_.size() - 1);
}

void NgramSource::Index(std::span<const int> sequence) {
  const auto differ =
      std::mismatch(indexed_.begin(), indexed_.end(), sequence.begin(), sequence.end());
  const std::size_t common = differ.first - indexed_.begin();
  while (indexed_.size() > common) {  // positions leave their chains newest first
    const std::size_t at = indexed_.size() - 1;
    if (at > 0) heads_[BucketOf(indexed_[at - 1], indexed_[at])] = previous_[at];
    indexed_.pop_back();
  }
  for (std::size_t at = indexed_.size(); at < sequence.size(); ++at) {
    indexed_.push_back(sequence[at]);
    if (at == 0) continue;
    int& head = heads_[BucketOf(sequence[at - 1], sequence[at])];
    previous_[at] = head;
    head = static_cast<int>(at);
  }
}

NgramSource::Match NgramSource::Longest(std::span<const int> sequence) const {
  Match best;
  const int last = base::IntSize(sequence) - 1;
  if (last < 1) return best;
  int place = previous_[last];  // before the sequence's own end
  for (int looked = 0; place >= 1 && looked < kCandidatesMax; ++looked) {
    int length = 0;
    while (length < kLengthMax && length <= place &&
           sequence[place - length] == sequence[last - length])
      ++length;
    if (length > best.length) best = {place + 1, length};
    place = previous_[place];
  }
  return best.length >= 2 ? best : Match{};  // other pairs share buckets
}

Status NgramSource::Propose(std::span<const int> sequence, const More& more, Draft& draft) {
  if (draft.size > 0) return OkStatus();  // it has no further proposals
  Index(sequence);
  const Match match = Longest(sequence);
  if (match.length == 0) return OkStatus();
  const int room = std::min(kProposalsMax, base::IntSize(sequence) - match.end);
  while (draft.size < room && more(draft)) {
    Proposal& proposal = draft[draft.size];
    proposal.token = sequence[match.end + draft.size];
    proposal.confidence = ConfidenceOf(match.length + draft.size);
    proposal.num_alternates = 0;
    proposal.distribution.Clear();
    ++draft.size;
  }
  return OkStatus();
}

}  // namespace thermocline::spec
