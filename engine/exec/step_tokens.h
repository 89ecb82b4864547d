// The tokens of a step: of one sequence, or of several sequences.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/index.h"
#include "engine/nn/kv_cache.h"

namespace thermocline::exec {

// Allocates nothing after construction.
class StepTokens {
 public:
  // The sequence that a token belongs to, and its position there.
  struct Place {
    nn::KvCache* cache = nullptr;
    int position = 0;
    int end = 0;  // tokens of the sequence after the step
  };
  // Consecutive tokens of one sequence, whose attention is computed together.
  struct Tile {
    int token, count;
  };

  // The tokens of one sequence. Tentative: some may be rolled back after the step.
  struct Part {
    int first, count;
    nn::KvCache* cache;
    bool tentative;
  };

  explicit StepTokens(int tokens_max) : tokens_max_(tokens_max) {
    ids_.reserve(tokens_max);
    places_.reserve(tokens_max);
    tiles_.reserve(tokens_max);
    parts_.reserve(tokens_max);
  }

  void Clear() {
    ids_.clear();
    places_.clear();
    tiles_.clear();
    parts_.clear();
    before_ = {};
  }
  // Reserves the cache's room for its next tokens. Requires: there is room.
  void Add(std::span<const int> tokens, nn::KvCache& cache, int tile_tokens, bool tentative) {
    const int first = count(), added = base::IntSize(tokens);
    CHECK_LE(first + added, tokens_max_);
    CHECK_LE(cache.length() + added, cache.capacity());
    CHECK(cache.Reserve(added));
    parts_.push_back({first, added, &cache, tentative});
    ids_.insert(ids_.end(), tokens.begin(), tokens.end());
    const int before = cache.length();
    for (int t = 0; t < added; ++t) places_.push_back({&cache, before + t, before + added});
    for (int t = 0; t < added; t += tile_tokens)
      tiles_.push_back({first + t, std::min(tile_tokens, added - t)});
  }

  // `count` tokens of a text from `first` on, all of whose tokens see each other. Reserves the
  // cache's room for the whole text. Requires: there is room; nothing was added before.
  void AddOfText(std::span<const int> text, int first, int count, nn::KvCache& cache,
                 int tile_tokens) {
    CHECK(ids_.empty() && count <= tokens_max_);
    const int length = base::IntSize(text);
    if (cache.length() == 0) {
      CHECK(length <= cache.capacity() && cache.Reserve(length));
      cache.Advance(length);
    }
    parts_.push_back({0, count, &cache, false});
    const auto ids = text.subspan(first, count);
    ids_.assign(ids.begin(), ids.end());
    before_ = text.first(first);
    for (int t = 0; t < count; ++t) places_.push_back({&cache, first + t, length});
    for (int t = 0; t < count; t += tile_tokens)
      tiles_.push_back({t, std::min(tile_tokens, count - t)});
  }

  // Records the progress of the states of recurrent layers, or that they are lost.
  void EndStates(bool computed) {
    for (const Part& part : parts_) {
      const int before = part.cache->length();
      part.cache->SetStateLength(part.tentative ? before : before + part.count);
      if (!computed) part.cache->LoseState();
    }
  }

  // The tokens of a text in front of the step's.
  std::span<const int> before() const { return before_; }
  int count() const { return base::IntSize(ids_); }
  std::span<const int> ids() const { return ids_; }
  const Place& place(int token) const { return places_[token]; }
  std::span<const Tile> tiles() const { return tiles_; }
  std::span<const Part> parts() const { return parts_; }

 private:
  const int tokens_max_;
  std::vector<int> ids_;  // [T]
  std::span<const int> before_;
  std::vector<Place> places_;  // [T]
  std::vector<Tile> tiles_;
  std::vector<Part> parts_;
};

}  // namespace thermocline::exec
