#include "server/protocol/chat_tokens.h"

#include "server/core/prompt.h"
#include "server/protocol/conversation_fields.h"

namespace thermocline::protocol {

Result<std::vector<int>> ChatTokens(server::Service& service, Fields& fields) {
  const server::Conversation conversation = ReadConversation(fields);
  RETURN_IF_ERROR(fields.status());
  auto prompt = server::EncodeChat(service, conversation, server::PromptLimit::kNone);
  if (!prompt.ok()) return prompt.status().WithField("messages");
  return std::move(prompt->tokens);
}

}  // namespace thermocline::protocol
