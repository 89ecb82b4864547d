// A GenerateRequest, checked and turned into the engine's terms.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/api/request.h"
#include "engine/base/json.h"
#include "server/grpc/refusal.h"
#include "thermocline/v1/inference.pb.h"

namespace thermocline::rpc {

struct GenerateParams {
  std::string model;  // "" = not given
  // The prompt: a text, a conversation, or the ids in `request`.
  std::optional<std::string> text;
  std::optional<Json> conversation;  // {"messages": [...]} for the chat template
  Request request;
  int choices = 1;
  double timeout_s = 0;           // 0 = the server's
  bool return_tokens = false;     // ids in Delta
  std::size_t prompt_bytes = 0;   // about, before it is made into tokens
  std::size_t prompt_tokens = 0;  // of a text or conversation once they are known, or are at least
};

struct GenerateDefaults {
  SamplingParams sampling;
  int max_tokens = 0;
};

// Pure; the message is not needed any more after it. The refusal names the field.
std::variant<GenerateParams, Refusal> ParseGenerate(const v1::GenerateRequest& message,
                                                    const GenerateDefaults& defaults);

// GenerateParams::conversation.
std::variant<Json, Refusal> ParseChat(const v1::Chat& chat);

}  // namespace thermocline::rpc
