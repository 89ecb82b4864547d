// Drafts from the text itself: the tokens that followed the longest earlier occurrence of the last
// tokens. Costs microseconds; answers that quote, summarise or edit their prompt repeat it.
//
// Positions with the same last two tokens are chained, newest first, as in LZ77 matching. The one
// with the longest common past is taken, and the newest among equals.
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
  static constexpr int kLengthMax = 64;      // maximum compared tokens of a match
  static constexpr int kCandidatesMax = 64;  // positions that are examined

  struct Match {
    int end = 0;  // position of the token after it
    int length = 0;
  };
  // Updates the index to `sequence`.
  void Index(std::span<const int> sequence);
  Match Longest(std::span<const int> sequence) const;
  std::size_t BucketOf(int first, int second) const;

  std::vector<int> indexed_;   // the tokens whose positions are in the chains
  std::vector<int> heads_;     // by bucket: newest position of a pair's second token, -1 = none
  std::vector<int> previous_;  // by position: the previous one in its chain
};

}  // namespace thermocline::spec
