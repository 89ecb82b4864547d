// The prompts of requests: random words with a given number of tokens, or a data set.
#pragma once

#include <string>
#include <vector>

#include "engine/base/status.h"
#include "loadtest/workload/random.h"
#include "loadtest/workload/request.h"

namespace thermocline::loadtest {

// A uniform distribution from `low` to `high`.
struct TokenRange {
  int low = 0, high = 0;
  int Draw(Random& random) const {
    return low + static_cast<int>(random.Below(static_cast<std::uint64_t>(high - low) + 1));
  }
};
// Parses "64" or "32-128", with a minimum of `low_min`.
std::optional<TokenRange> ParseTokenRange(std::string_view text, int low_min);

// The server's number of tokens for words; measured by Calibrate (probe.h).
struct TokenScale {
  double tokens_per_word = 1.3;  // for English; used without a measurement
  double overhead_tokens = 0;    // of the template
  bool measured = false;
};

// `count` words in sentences.
std::string RandomWords(Random& random, int count);
// A prompt of about `tokens` tokens. All prompts begin differently, so that none is found in a
// prefix cache.
std::string RandomPrompt(Random& random, int tokens, const TokenScale& scale);

// A prompt of a data set.
struct DatasetEntry {
  std::vector<Message> messages = {};
  int max_tokens = 0;  // 0 = not given
};
// JSONL: a string, {"prompt"}, {"question"}, {"text"} or {"messages": [{"role", "content"}]}, each
// with an optional "max_tokens". InvalidArgument names the line.
Result<std::vector<DatasetEntry>> ReadDataset(const std::string& path);

}  // namespace thermocline::loadtest
