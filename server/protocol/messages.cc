#include "server/protocol/messages.h"

#include <algorithm>

#include "server/chat/conversation.h"
#include "server/core/request_limits.h"

namespace thermocline::protocol {
namespace {

struct Place {
  const char* field;
  std::string where;
};

// True for the types of text parts, in all APIs.
bool IsText(const Json* type) {
  static constexpr std::string_view kTypes[] = {"text", "input_text", "output_text", "refusal"};
  return type != nullptr && type->is_string() &&
         std::find(std::begin(kTypes), std::end(kTypes), type->as_string()) != std::end(kTypes);
}

// Reads a content that is a string, null, absent, or a list of text parts.
bool ReadContent(const Json* content, const Place& place, Fields& fields, Json& out) {
  const auto& [field, where] = place;
  if (content == nullptr || content->is_string()) {
    out = content == nullptr ? Json() : *content;
    return true;
  }
  if (!content->is_array()) {
    fields.Fail(field, StrCat(where, ".content must be a string or a list of parts, not a ",
                              content->type_name()));
    return false;
  }
  std::string text;
  for (std::size_t i = 0; i < content->as_array().size(); ++i) {
    const Json& part = content->as_array()[i];
    const Json *type = part.Find("type"), *value = part.Find("text");
    if (value == nullptr) value = part.Find("refusal");
    if (!IsText(type) || value == nullptr || !value->is_string()) {
      fields.FailUnsupported(
          field, StrCat(where, ".content[", i,
                        "]: only parts of type 'text' with a string 'text' are supported"));
      return false;
    }
    fields.IgnoreOthers(StrCat(field, ".content"), part,
                        {"type", "text", "refusal", "annotations", "logprobs", "cache_control"});
    text += value->as_string();
  }
  out = std::move(text);
  return true;
}

bool IsListOfObjects(const Json& value) {
  return value.is_array() && std::all_of(value.as_array().begin(), value.as_array().end(),
                                         [](const Json& item) { return item.is_object(); });
}

// Clients send tool arguments as JSON text; templates need a value.
Json ReadToolCalls(const Json& calls, const char* field, Fields& fields) {
  const std::string where = StrCat(field, ".tool_calls");
  Json out = calls;
  for (Json& call : out.array()) {
    fields.IgnoreOthers(where, call, {"id", "type", "function", "index"});
    const Json* function = call.Find("function");
    if (function != nullptr)
      fields.IgnoreOthers(where + ".function", *function, {"name", "arguments", "description"});
    const Json* arguments = function == nullptr ? nullptr : function->Find("arguments");
    if (arguments == nullptr || !arguments->is_string()) continue;
    const std::string& text = arguments->as_string();
    const bool blank = text.find_first_not_of(" \t\r\n") == std::string::npos;
    const auto parsed = base::ParseJson(blank ? "{}" : text);
    if (!parsed.ok()) continue;
    Json changed = *function;
    changed.Set("arguments", *parsed);
    changed.Set(chat::kArgumentsText, blank ? "{}" : text);
    call.Set("function", std::move(changed));
  }
  return out;
}

// Members that some clients send and that should change the answer, but are not supported.
constexpr std::string_view kRefusedMembers[] = {"images", "audio", "function_call"};
constexpr std::string_view kKnownMembers[] = {
    "role", "content", "tool_calls", "name", "tool_call_id", "reasoning_content", "reasoning",
    // Empty, or copied from one of our answers.
    "refusal", "annotations", "id", "type", "status", "prefix", "cache_control"};

bool IsEmpty(const Json& value) {
  return value.is_null() || (value.is_array() && value.as_array().empty()) ||
         (value.is_object() && value.as_object().empty()) ||
         (value.is_string() && value.as_string().empty());
}

}  // namespace

void CheckMembers(Fields& fields, const Json& message, const char* field,
                  const std::string& where) {
  if (!message.is_object()) return;
  for (const auto& [key, value] : message.as_object()) {
    const std::string_view name = key;
    const auto is = [name](std::string_view other) { return other == name; };
    if (IsEmpty(value) || std::any_of(std::begin(kKnownMembers), std::end(kKnownMembers), is))
      continue;
    if (std::any_of(std::begin(kRefusedMembers), std::end(kRefusedMembers), is))
      return fields.FailUnsupported(field, StrCat(where, ".", key, " is not supported"));
    fields.Ignore(StrCat(field, ".", key));
  }
}

void DropBillingLine(Fields& fields, std::string& system_text) {
  constexpr std::string_view kLine = "x-anthropic-billing-header:";
  if (!system_text.starts_with(kLine)) return;
  const std::size_t end = system_text.find('\n');
  system_text.erase(0, end == std::string::npos ? end : end + 1);
  fields.LeaveOut("system.x-anthropic-billing-header");
}

Json ReadMessages(Fields& fields) {
  return ReadMessages(fields, fields.Find("messages"), "messages");
}

Json ReadMessages(Fields& fields, const Json* messages, const char* field) {
  if (messages == nullptr || !messages->is_array() || messages->as_array().empty()) {
    fields.Fail(field, StrCat("'", field, "' must be a list of at least one message"));
    return {};
  }
  if (messages->as_array().size() > server::kMessagesMax) {
    fields.Fail(field, StrCat("'", field, "' has ", messages->as_array().size(),
                              " entries; at most ", server::kMessagesMax, " are allowed"));
    return {};
  }
  Json::Array out;
  for (std::size_t i = 0; i < messages->as_array().size(); ++i) {
    const Json& message = messages->as_array()[i];
    const std::string where = StrCat(field, "[", i, "]");
    const Json* role = message.Find("role");
    static const std::vector<std::string> kRoles = {"system", "developer", "user", "assistant",
                                                    "tool"};
    if (role == nullptr || !role->is_string() ||
        std::find(kRoles.begin(), kRoles.end(), role->as_string()) == kRoles.end()) {
      fields.Fail(field,
                  StrCat(where, ".role must be one of system, developer, user, assistant, tool"));
      return {};
    }
    Json content;
    if (!ReadContent(message.Find("content"), {field, where}, fields, content)) return {};
    CheckMembers(fields, message, field, where);
    const bool is_system = role->as_string() == "system" || role->as_string() == "developer";
    if (is_system && content.is_string()) {
      std::string text = content.as_string();
      DropBillingLine(fields, text);
      content = std::move(text);
    }
    const Json* calls = message.Find("tool_calls");
    if (content.is_null() && (role->as_string() != "assistant")) {
      fields.Fail(field, StrCat(where, ".content is missing"));
      return {};
    }
    Json entry{Json::Object{{"role", is_system ? "system" : role->as_string()},
                            {"content", content.is_null() ? Json("") : content}}};
    if (calls != nullptr) {
      if (!IsListOfObjects(*calls)) {
        fields.Fail(field, StrCat(where, ".tool_calls must be a list of objects"));
        return {};
      }
      entry.Set("tool_calls", ReadToolCalls(*calls, field, fields));
    }
    for (const char* name : {"name", "tool_call_id", "reasoning_content"}) {
      const Json* value = message.Find(name);
      if (value == nullptr) continue;
      if (!value->is_string()) {
        fields.Fail(field,
                    StrCat(where, ".", name, " must be a string, not a ", value->type_name()));
        return {};
      }
      entry.Set(name, *value);
    }
    const Json* reasoning = message.Find("reasoning");  // vLLM's name
    if (reasoning != nullptr && reasoning->is_string() &&
        entry.Find("reasoning_content") == nullptr)
      entry.Set("reasoning_content", *reasoning);
    out.push_back(std::move(entry));
  }
  return Json::Object{{"messages", std::move(out)}};
}

}  // namespace thermocline::protocol
