// Parses the body of POST /v1/completions into a Request.
#pragma once

#include <string>
#include <vector>

#include "server/protocol/common_request.h"

namespace thermocline::openai {

struct CompletionRequest : protocol::CommonRequest {
  bool echo = false;  // the answer begins with the prompt
};

inline constexpr std::size_t kPromptsMax = 64;
inline constexpr int kLegacyLogprobsMax = 5;

// Reads a string, a list of token ids, or a list of either; nullopt if `value` is neither, is empty
// or is too large.
std::optional<std::vector<server::Prompt>> ReadPrompts(const Json& value);

// Pure; at most kPromptsMax prompts, as texts or ids. Unknown fields are rejected. `log` records
// the fields that are read.
Result<CompletionRequest> ParseCompletionRequest(std::string_view body,
                                                 const protocol::RequestDefaults& defaults,
                                                 protocol::FieldLog* log = nullptr);

}  // namespace thermocline::openai
