// POST /v1/chat/completions: the body, checked and turned into the engine's terms.
#pragma once

#include <string>
#include <variant>

#include "engine/base/json.h"
#include "engine/request.h"
#include "server/openai/error.h"

namespace thermocline::openai {

struct ChatRequest {
  std::string model;  // "" = not given
  Json conversation;  // {"messages": [...]} for the chat template
  Request request;    // without its prompt
  bool stream = false;
  bool include_usage = false;  // a usage chunk at the end of a stream
  double timeout_s = 0;        // 0 = the server's
};

struct ChatDefaults {
  SamplingParams sampling;
  int max_tokens = 0;
};

// Pure. `x_thermocline` holds our own fields. Fields that would change the answer and that we do
// not support are refused, unknown ones ignored.
std::variant<ChatRequest, ApiError> ParseChatRequest(std::string_view body,
                                                     const ChatDefaults& defaults);

}  // namespace thermocline::openai
