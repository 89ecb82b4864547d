#include "server/openai/chat_request.h"

#include <algorithm>

#include "server/protocol/conversation_fields.h"

namespace thermocline::openai {
namespace {

// Returns Request::logprobs; -1 = none.
int ReadLogprobs(protocol::Fields& fields) {
  const bool wanted = fields.Bool("logprobs", false);
  const auto top = fields.Int("top_logprobs", -1, 0, kLogprobsMax);
  if (top > 0 && !wanted) fields.Fail("top_logprobs", "'top_logprobs' needs 'logprobs': true");
  return wanted ? static_cast<int>(std::max<std::int64_t>(top, 0)) : -1;
}

}  // namespace

Result<ChatRequest> ParseChatRequest(std::string_view body,
                                     const protocol::RequestDefaults& defaults,
                                     protocol::FieldLog* log) {
  ASSIGN_OR_RETURN(const Json json, protocol::ParseBody(body));
  protocol::Fields fields(json, log);
  ChatRequest out;
  out.generation.prompt_field = "messages";
  out.generation.prompts = {protocol::ReadConversation(fields)};
  out.generation.in_parts = true;
  protocol::ReadCommon(fields, defaults, 1, out);
  out.generation.request.logprobs = ReadLogprobs(fields);
  protocol::FinishFields(fields, defaults.strict_fields, out.generation);
  if (!fields.ok()) return fields.status();
  return out;
}

}  // namespace thermocline::openai
