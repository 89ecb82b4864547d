#include "tools/run/conversation.h"

#include "engine/base/file.h"

namespace thermocline::tools {
namespace {

const Json* TextAt(const Json& message, const char* key) {
  const Json* value = message.is_object() ? message.Find(key) : nullptr;
  return value != nullptr && value->is_string() ? value : nullptr;
}

}  // namespace

void Conversation::Add(const char* role, const std::string& text) {
  turns_.push_back(Json::Object{{"role", role}, {"content", text}});
}

Json Conversation::ToJson() const {
  Json::Array messages;
  if (!system_.empty()) messages.push_back(Json::Object{{"role", "system"}, {"content", system_}});
  messages.insert(messages.end(), turns_.begin(), turns_.end());
  return Json::Object{{"messages", std::move(messages)}};
}

Result<Conversation> Conversation::Load(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, base::ReadFileToString(path));
  const auto json = base::ParseJson(text);
  if (!json.ok()) return json.status().Annotate(path);
  const Json* messages = json->is_object() ? json->Find("messages") : nullptr;
  if (messages == nullptr || !messages->is_array())
    return base::InvalidArgument(path, ": no saved chat: it has no list \"messages\"");
  Conversation out;
  for (std::size_t i = 0; i < messages->as_array().size(); ++i) {
    const Json& message = messages->as_array()[i];
    const Json *role = TextAt(message, "role"), *content = TextAt(message, "content");
    const bool first = i == 0 && role != nullptr && role->as_string() == "system";
    const bool turn =
        role != nullptr && (role->as_string() == "user" || role->as_string() == "assistant");
    if (content == nullptr || !(first || turn)) {
      return base::InvalidArgument(path, ": messages[", i,
                                   "] is not a text of a user, an assistant or, first, the system");
    }
    if (first) {
      out.SetSystem(content->as_string());
    } else {
      out.Add(role->as_string().c_str(), content->as_string());
    }
  }
  return out;
}

Status Conversation::Save(const std::string& path) const {
  ASSIGN_OR_RETURN(const auto writer, base::FileWriter::Create(path));
  RETURN_IF_ERROR(writer->Append(ToJson().Dump(1) + "\n"));
  return writer->Commit();
}

}  // namespace thermocline::tools
