#include "server/protocol/conversation_fields.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "server/core/request_limits.h"
#include "server/protocol/messages.h"
#include "server/protocol/tool_fields.h"

namespace thermocline::protocol {
namespace {

// Template variables that come from the conversation, the model, or the template language.
constexpr std::array<std::string_view, 7> kOwnNames = {
    "messages", "tools", "bos_token", "eos_token", "namespace", "raise_exception", "strftime_now"};

// Reads the chat template's variables, besides messages and tools.
void ReadTemplateFields(Fields& fields, Json& json) {
  if (const Json* arguments = fields.Find("chat_template_kwargs")) {
    if (!arguments->is_object())
      return fields.Fail("chat_template_kwargs", "'chat_template_kwargs' must be an object");
    for (const auto& [key, value] : arguments->as_object()) {
      if (std::find(kOwnNames.begin(), kOwnNames.end(), key) != kOwnNames.end()) {
        return fields.Fail("chat_template_kwargs",
                           StrCat("'chat_template_kwargs' cannot replace '", key, "'"));
      }
      json.Set(key, value);
    }
  }
  if (fields.Find("enable_thinking") != nullptr)
    json.Set("enable_thinking", fields.Bool("enable_thinking", true));
  SetReasoningEffort(fields, "reasoning_effort", fields.String("reasoning_effort", ""), json);
}

// Reads the most tokens of reasoning under the names that llama-server, vLLM and Qwen's API have.
void ReadReasoningBudget(Fields& fields, server::Conversation& out) {
  for (const char* name : {"reasoning_budget_tokens", "thinking_budget_tokens", "reasoning_budget",
                           "thinking_token_budget", "thinking_budget"}) {
    if (fields.Find(name) != nullptr && !out.reasoning_budget.has_value())
      out.reasoning_budget = fields.Int32(name, -1, -1, INT32_MAX);
  }
  if (fields.Find("reasoning_budget_message") != nullptr)
    out.reasoning_message = fields.String("reasoning_budget_message", "");
  if (out.reasoning_message.has_value() &&
      out.reasoning_message->size() > server::kReasoningMessageBytesMax)
    fields.Fail("reasoning_budget_message",
                StrCat("'reasoning_budget_message' has ", out.reasoning_message->size(),
                       " bytes; at most ", server::kReasoningMessageBytesMax, " are allowed"));
}

// True if the last message is an answer to continue. It is, if its role is assistant, unless the
// request says that it is complete.
bool ContinuesLast(Fields& fields, const Json& json) {
  const Json* messages = json.Find("messages");
  const Json* last = messages == nullptr ? nullptr : &messages->as_array().back();
  const bool is_answer = last != nullptr && last->Find("role")->as_string() == "assistant" &&
                         last->Find("tool_calls") == nullptr;
  const bool wanted = fields.Bool("continue_final_message", is_answer);
  if (wanted && !is_answer && fields.ok())
    fields.Fail("continue_final_message",
                "'continue_final_message' needs a last message of the assistant's");
  return wanted;
}

}  // namespace

void SetReasoningEffort(Fields& fields, const char* field, const std::string& effort, Json& json) {
  if (effort.empty()) return;
  static const std::vector<std::string> kEfforts = {"none", "minimal", "low", "medium",
                                                    "high", "xhigh",   "max"};
  if (std::find(kEfforts.begin(), kEfforts.end(), effort) == kEfforts.end())
    return fields.Fail(
        field, StrCat("'", field, "' must be none, minimal, low, medium, high, xhigh or max"));
  json.Set("reasoning_effort", effort);
  if (effort == "none" && json.Find("enable_thinking") == nullptr)
    json.Set("enable_thinking", false);
}

server::Conversation ReadConversation(Fields& fields) {
  server::Conversation out{.json = ReadMessages(fields), .tools = ReadTools(fields)};
  if (!fields.ok()) return out;
  ReadTemplateFields(fields, out.json);
  ReadReasoningBudget(fields, out);
  out.continues_last = ContinuesLast(fields, out.json);
  if (fields.Find("add_generation_prompt") != nullptr) {
    const bool wanted = fields.Bool("add_generation_prompt", true);
    if (wanted && out.continues_last && fields.Find("continue_final_message") != nullptr)
      fields.Fail("add_generation_prompt",
                  "'add_generation_prompt' and 'continue_final_message' exclude each other");
    if (!out.continues_last) out.json.Set("add_generation_prompt", wanted);
  }
  return out;
}

}  // namespace thermocline::protocol
