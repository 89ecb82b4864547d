// Which tokens a repetition does not go across, from the strings that a client names.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/text/tokenizer.h"

namespace thermocline::text {

// The breakers where a client names none. Source: as DRY's (engine/sampling/dry_penalty.h).
inline const std::vector<std::string> kDryBreakersDefault = {"\n", ":", "\"", "*"};

// Ids of the tokens whose text contains one of `strings`, ascending: SamplingParams::dry_breakers.
// Empty strings and those that no token contains name nothing. Reads the whole vocabulary once,
// whatever the strings: about 2 ms of 150,000 tokens (measured; 25 ms where each of 16 strings is
// looked for by itself).
std::vector<int> DryBreakerTokens(const Tokenizer& tokenizer,
                                  const std::vector<std::string>& strings);

// The same, not looked for again where they were asked for just before: all choices of a request
// name the same strings. Thread-safe.
class DryBreakers {
 public:
  // Lists that are remembered: of about as many clients at once.
  static constexpr std::size_t kRemembered = 8;
  // The caller's and ours: others may make us forget it while it is read.
  using Tokens = std::shared_ptr<const std::vector<int>>;

  explicit DryBreakers(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  Tokens Find(const std::vector<std::string>& strings);

 private:
  struct Entry {
    std::vector<std::string> strings;
    Tokens tokens;
  };
  Tokens Recall(const std::vector<std::string>& strings);

  const Tokenizer& tokenizer_;
  base::Mutex mutex_;
  std::list<Entry> entries_ GUARDED_BY(mutex_);  // the last one asked for first
};

}  // namespace thermocline::text
