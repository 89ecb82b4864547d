// From the body of POST /v1/completions to a Request.
#pragma once

#include <string>
#include <vector>

#include "server/protocol/common_request.h"

namespace thermocline::openai {

struct CompletionRequest : protocol::CommonRequest {
  bool echo = false;  // the prompt comes in front of what is generated
};

inline constexpr std::size_t kPromptsMax = 64;
inline constexpr int kLegacyLogprobsMax = 5;

// A string, a list of token ids, or a list of either; nothing if `value` is neither, or holds
// nothing or too much.
std::optional<std::vector<server::Prompt>> ReadPrompts(const Json& value);

// Pure; at most kPromptsMax prompts, texts or ids. Fields that there are not are refused. `log`
// learns which fields are read.
Result<CompletionRequest> ParseCompletionRequest(std::string_view body,
                                                 const protocol::RequestDefaults& defaults,
                                                 protocol::FieldLog* log = nullptr);

}  // namespace thermocline::openai
