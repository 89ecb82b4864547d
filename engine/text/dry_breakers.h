// Which tokens a repetition does not go across, from the strings that a client names.
#pragma once

#include <string>
#include <vector>

#include "engine/text/tokenizer.h"

namespace thermocline::text {

// Where a client names none. Source: as DRY's (engine/exec/dry_penalty.h).
inline const std::vector<std::string> kDryBreakersDefault = {"\n", ":", "\"", "*"};

// Ids of the tokens whose text contains one of `strings`, ascending: SamplingParams::dry_breakers.
// Empty strings and those that no token contains name nothing. Reads the whole vocabulary.
std::vector<int> DryBreakerTokens(const Tokenizer& tokenizer,
                                  const std::vector<std::string>& strings);

}  // namespace thermocline::text
