#include "engine/text/dry_breakers.h"

#include <algorithm>

#include "engine/base/index.h"
#include "engine/text/contains_any.h"

namespace thermocline::text {

std::vector<int> DryBreakerTokens(const Tokenizer& tokenizer,
                                  const std::vector<std::string>& strings) {
  const ContainsAny breaks(strings);
  std::vector<int> out;
  const auto count = base::IntSize(tokenizer.vocabulary().tokens);
  for (int token = 0; token < count; ++token)
    if (breaks(tokenizer.TokenBytes(token, true))) out.push_back(token);
  return out;
}

DryBreakers::Tokens DryBreakers::Find(const std::vector<std::string>& strings) {
  if (Tokens known = Recall(strings)) return known;
  // The lock is not held meanwhile, so that requests with other strings do not wait.
  auto tokens = std::make_shared<const std::vector<int>>(DryBreakerTokens(tokenizer_, strings));
  const base::MutexLock lock(mutex_);
  entries_.push_front({.strings = strings, .tokens = tokens});
  if (entries_.size() > kRemembered) entries_.pop_back();
  return tokens;
}

DryBreakers::Tokens DryBreakers::Recall(const std::vector<std::string>& strings) {
  const base::MutexLock lock(mutex_);
  const auto known = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.strings == strings; });
  if (known == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, known);
  return known->tokens;
}

}  // namespace thermocline::text
