#include "server/openai/responses_input.h"

#include <algorithm>
#include <utility>

#include "engine/base/json_text.h"
#include "server/protocol/messages.h"

namespace thermocline::openai {
namespace {

// A text, or the joined texts of a list of parts.
std::string JoinedText(const Json* value) {
  if (value == nullptr || !value->is_array()) return TextOf(value);
  std::string out;
  for (const Json& part : value->as_array()) out += TextOf(part.Find("text"));
  return out;
}

// Converts input items to messages, one by one.
class InputReader {
 public:
  explicit InputReader(protocol::Fields& fields) : fields_(fields) {}

  Json Run() {
    const Json* input = fields_.Find("input");
    const std::string instructions = fields_.String("instructions", "");
    if (!instructions.empty()) AddMessage("system", instructions);
    if (input != nullptr && input->is_string()) {
      AddMessage("user", *input);
    } else if (input != nullptr && input->is_array()) {
      for (std::size_t i = 0; fields_.ok() && i < input->as_array().size(); ++i)
        AddItem(input->as_array()[i], StrCat("input[", i, "]"));
    } else {
      fields_.Fail("input", "'input' must be a text or a list of items");
    }
    if (!fields_.ok()) return {};
    const Json messages = Json(std::move(messages_));
    return protocol::ReadMessages(fields_, &messages, "input");
  }

 private:
  void AddItem(const Json& item, const std::string& where) {
    const std::string type = TextOf(item.Find("type"));
    if (type.empty() || type == "message") return AddSaid(item, where);
    if (type == "function_call") return AddCall(item, where);
    if (type == "function_call_output") return AddOutput(item, where);
    if (type == "reasoning") {
      fields_.IgnoreOthers("input.reasoning", item,
                           {"type", "id", "summary", "content", "encrypted_content", "status"});
      const Json* content = item.Find("content");
      reasoning_ +=
          JoinedText(content != nullptr && content->is_array() && !content->as_array().empty()
                         ? content
                         : item.Find("summary"));
      return;
    }
    fields_.FailUnsupported("input", StrCat(where, ": items of type '", base::Shorten(type, 64),
                                            "' are not supported"));
  }

  void AddSaid(const Json& item, const std::string& where) {
    protocol::CheckMembers(fields_, item, "input", where);
    const std::string role = TextOf(item.Find("role"));
    const Json* content = item.Find("content");
    if (content == nullptr) return fields_.Fail("input", StrCat(where, ".content is missing"));
    AddMessage(role, *content);
  }

  void AddMessage(const std::string& role, const Json& content) {
    Json message = Json::Object{{"role", role}, {"content", content}};
    if (role == "assistant") TakeReasoning(message);
    messages_.push_back(std::move(message));
  }

  void TakeReasoning(Json& message) {
    if (!reasoning_.empty()) message.Set("reasoning_content", std::exchange(reasoning_, ""));
  }

  // A call belongs to the answer right before it.
  void AddCall(const Json& item, const std::string& where) {
    fields_.IgnoreOthers("input.function_call", item,
                         {"type", "id", "call_id", "name", "arguments", "status"});
    const std::string id = TextOf(item.Find("call_id")), name = TextOf(item.Find("name"));
    if (id.empty() || name.empty())
      return fields_.Fail("input", StrCat(where, " needs 'call_id' and 'name'"));
    Json call = Json::Object{
        {"id", id},
        {"type", "function"},
        {"function", Json::Object{{"name", name}, {"arguments", TextOf(item.Find("arguments"))}}}};
    const bool follows = !messages_.empty() && TextOf(messages_.back().Find("role")) == "assistant";
    if (!follows) messages_.push_back(Json::Object{{"role", "assistant"}, {"content", ""}});
    Json& answer = messages_.back();
    TakeReasoning(answer);
    if (answer.Find("tool_calls") == nullptr) answer.Set("tool_calls", Json::Array());
    const auto calls = std::find_if(answer.object().begin(), answer.object().end(),
                                    [](const auto& m) { return m.first == "tool_calls"; });
    calls->second.array().push_back(std::move(call));
  }

  void AddOutput(const Json& item, const std::string& where) {
    fields_.IgnoreOthers("input.function_call_output", item,
                         {"type", "id", "call_id", "output", "status"});
    const std::string id = TextOf(item.Find("call_id"));
    const Json* output = item.Find("output");
    if (id.empty() || output == nullptr)
      return fields_.Fail("input", StrCat(where, " needs 'call_id' and 'output'"));
    messages_.push_back(Json::Object{{"role", "tool"}, {"tool_call_id", id}, {"content", *output}});
  }

  protocol::Fields& fields_;
  Json::Array messages_;
  std::string reasoning_;
};

}  // namespace

Json ReadInput(protocol::Fields& fields) { return InputReader(fields).Run(); }

}  // namespace thermocline::openai
