#include "engine/text/dry_breakers.h"

#include <algorithm>

namespace thermocline::text {

std::vector<int> DryBreakerTokens(const Tokenizer& tokenizer,
                                  const std::vector<std::string>& strings) {
  std::vector<int> out;
  const auto count = static_cast<int>(tokenizer.vocabulary().tokens.size());
  for (int token = 0; token < count; ++token) {
    const std::string& text = tokenizer.TokenBytes(token, true);
    const auto in_text = [&](const std::string& s) {
      return !s.empty() && text.find(s) != std::string::npos;
    };
    if (std::any_of(strings.begin(), strings.end(), in_text)) out.push_back(token);
  }
  return out;
}

}  // namespace thermocline::text
