// Drafts from the text itself: what followed the longest run of the last tokens that was there
// before. Costs microseconds; answers that quote, summarise or edit their prompt repeat it.
//
// Places with the same last two tokens are chained, newest first, as matches are found in LZ77; of
// those the one with the longest common past is taken, and the newest among equals.
// Source: prompt lookup (Saxena 2023); the chains: Ziv and Lempel 1977 as in RFC 1951.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/index.h"
#include "engine/spec/draft_source.h"

namespace thermocline::spec {

// Buffers are sized at construction.
class NgramSource final : public DraftSource {
 public:
  // `capacity`: tokens of a sequence.
  explicit NgramSource(int capacity);
  const char* name() const override { return "ngram"; }
  void Begin(std::span<const int> prompt, const SamplingParams& params) override;
  Status Propose(std::span<const int> sequence, const More& more, Draft& draft) override;
  bool free() const override { return true; }
  bool parallel() const override { return true; }
  int capacity() const override { return base::IntSize(previous_); }

 private:
  static constexpr int kLengthMax = 64;      // tokens of a match that are compared
  static constexpr int kCandidatesMax = 64;  // places that are looked at

  struct Match {
    int end = 0;  // place of the token behind it
    int length = 0;
  };
  // Makes the index that of `sequence`.
  void Index(std::span<const int> sequence);
  Match Longest(std::span<const int> sequence) const;
  std::size_t BucketOf(int first, int second) const;

  std::vector<int> indexed_;   // the tokens whose places are in the chains
  std::vector<int> heads_;     // by bucket: newest place of a pair's second token, -1 = none
  std::vector<int> previous_;  // by place: the one before it in its chain
};

}  // namespace thermocline::spec
