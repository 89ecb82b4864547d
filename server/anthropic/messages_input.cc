#include "server/anthropic/messages_input.h"

#include <utility>

#include "server/openai/messages.h"

namespace thermocline::anthropic {
namespace {

using openai::Fields;

std::string TextOf(const Json* value) {
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

class InputReader {
 public:
  explicit InputReader(Fields& fields) : fields_(fields) {}

  Json Run() {
    AddSystem(fields_.Find("system"), "system");
    const Json* messages = fields_.Find("messages");
    if (messages == nullptr || !messages->is_array() || messages->as_array().empty())
      fields_.Fail("messages", "'messages' must be a list of at least one message");
    if (!fields_.ok()) return {};
    for (std::size_t i = 0; fields_.ok() && i < messages->as_array().size(); ++i)
      AddMessage(messages->as_array()[i], StrCat("messages[", i, "]"));
    if (!fields_.ok()) return {};
    if (!system_.empty())
      out_.insert(out_.begin(), Json::Object{{"role", "system"}, {"content", system_}});
    const Json list = Json(std::move(out_));
    return openai::ReadMessages(fields_, &list, "messages");
  }

 private:
  void Unsupported(const std::string& where, const std::string& type) {
    fields_.FailUnsupported("messages", StrCat(where, ": blocks of type '", base::Shorten(type, 64),
                                               "' are not supported"));
  }

  // A text, or blocks of text, joined.
  std::string BlocksText(const Json* content, const std::string& where) {
    if (content == nullptr || content->is_string()) return TextOf(content);
    std::string out;
    if (!content->is_array()) {
      fields_.Fail("messages", StrCat(where, " must be a text or a list of blocks"));
      return out;
    }
    for (const Json& block : content->as_array()) {
      const std::string type = TextOf(block.Find("type"));
      if (type != "text") {
        Unsupported(where, type);
        return out;
      }
      out += StrCat(out.empty() ? "" : "\n", TextOf(block.Find("text")));
    }
    return out;
  }

  void AddSystem(const Json* content, const std::string& where) {
    const std::string text = BlocksText(content, where);
    if (!text.empty()) system_ += StrCat(system_.empty() ? "" : "\n\n", text);
  }

  void AddMessage(const Json& message, const std::string& where) {
    const std::string role = TextOf(message.Find("role"));
    const Json* content = message.Find("content");
    if (role == "system") return AddSystem(content, where + ".content");
    if (role != "user" && role != "assistant")
      return fields_.Fail("messages", StrCat(where, ".role must be user, assistant or system"));
    if (content == nullptr || !(content->is_string() || content->is_array()))
      return fields_.Fail("messages", StrCat(where, ".content must be a text or a list of blocks"));
    if (content->is_string()) {
      out_.push_back(Json::Object{{"role", role}, {"content", *content}});
    } else if (role == "user") {
      AddUser(content->as_array(), where);
    } else {
      AddAssistant(content->as_array(), where);
    }
  }

  // Results come before the same turn's text.
  void AddUser(const Json::Array& blocks, const std::string& where) {
    std::string text;
    bool said = false;
    for (const Json& block : blocks) {
      const std::string type = TextOf(block.Find("type"));
      if (type == "text") {
        text += StrCat(said ? "\n" : "", TextOf(block.Find("text")));
        said = true;
      } else if (type == "tool_result") {
        AddResult(block, where);
      } else {
        return Unsupported(where, type);
      }
    }
    if (said) out_.push_back(Json::Object{{"role", "user"}, {"content", text}});
  }

  void AddResult(const Json& block, const std::string& where) {
    const std::string id = TextOf(block.Find("tool_use_id"));
    if (id.empty())
      return fields_.Fail("messages", StrCat(where, ": a tool_result needs 'tool_use_id'"));
    const Json* error = block.Find("is_error");
    const bool failed = error != nullptr && error->is_bool() && error->as_bool();
    out_.push_back(Json::Object{
        {"role", "tool"},
        {"tool_call_id", id},
        {"content", StrCat(failed ? "Error: " : "", BlocksText(block.Find("content"), where))}});
  }

  void AddAssistant(const Json::Array& blocks, const std::string& where) {
    std::string text, thinking;
    Json::Array calls;
    for (const Json& block : blocks) {
      const std::string type = TextOf(block.Find("type"));
      if (type == "text") {
        text += TextOf(block.Find("text"));
      } else if (type == "thinking") {
        thinking += TextOf(block.Find("thinking"));
      } else if (type == "tool_use") {
        const Json* input = block.Find("input");
        calls.push_back(Json::Object{
            {"id", TextOf(block.Find("id"))},
            {"type", "function"},
            {"function", Json::Object{{"name", TextOf(block.Find("name"))},
                                      {"arguments", input == nullptr ? "{}" : input->Dump()}}}});
      } else if (type != "redacted_thinking") {
        return Unsupported(where, type);
      }
    }
    Json message = Json::Object{{"role", "assistant"}, {"content", text}};
    if (!thinking.empty()) message.Set("reasoning_content", thinking);
    if (!calls.empty()) message.Set("tool_calls", std::move(calls));
    out_.push_back(std::move(message));
  }

  Fields& fields_;
  Json::Array out_;
  std::string system_;
};

}  // namespace

Json ReadInput(Fields& fields) { return InputReader(fields).Run(); }

}  // namespace thermocline::anthropic
