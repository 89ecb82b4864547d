#include "server/openai/chat_request.h"

#include "server/openai/messages.h"

namespace thermocline::openai {
namespace {

// Fields whose silent neglect would give the client something else than it asked for.
void RefuseUnsupported(Fields& fields) {
  RefuseFields(fields, {"functions", "function_call", "audio", "modalities", "prediction"});
  const Json* choice = fields.Find("tool_choice");
  if (choice != nullptr &&
      !(choice->is_string() && (choice->as_string() == "none" || choice->as_string() == "auto"))) {
    fields.FailUnsupported("tool_choice",
                           "'tool_choice' other than 'none' or 'auto' is not supported");
  }
  const Json* tools = fields.Find("tools");
  if (tools != nullptr && !(tools->is_array() && tools->as_array().empty()))
    fields.FailUnsupported("tools", "'tools' are not supported");
}

// -1 = none, as Request::logprobs.
int ReadLogprobs(Fields& fields) {
  const bool wanted = fields.Bool("logprobs", false);
  const auto top = fields.Int("top_logprobs", -1, 0, kLogprobsMax);
  if (top > 0 && !wanted) fields.Fail("top_logprobs", "'top_logprobs' needs 'logprobs': true");
  return wanted ? static_cast<int>(std::max<std::int64_t>(top, 0)) : -1;
}

}  // namespace

Result<ChatRequest> ParseChatRequest(std::string_view body, const RequestDefaults& defaults,
                                     FieldLog* log) {
  ASSIGN_OR_RETURN(const Json json, base::ParseJson(body));
  Fields fields(json, log);
  if (!json.is_object()) {
    fields.Fail("", StrCat("the body must be a JSON object, not a ", json.type_name()));
    return fields.status();
  }
  ChatRequest out;
  out.asked.prompt_field = "messages";
  out.asked.prompts = {server::Conversation{ReadMessages(fields)}};
  ReadCommon(fields, defaults, 1, out);
  out.asked.request.logprobs = ReadLogprobs(fields);
  RefuseUnsupported(fields);
  if (!fields.ok()) return fields.status();
  return out;
}

}  // namespace thermocline::openai
