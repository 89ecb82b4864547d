#include "server/anthropic/messages_input.h"

#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "engine/base/json_text.h"
#include "server/protocol/messages.h"

namespace thermocline::anthropic {
namespace {

using protocol::Fields;

class InputReader {
 public:
  explicit InputReader(Fields& fields) : fields_(fields) {}

  Json Run() {
    const Json* system = fields_.Find("system");
    FindTools();
    const Json* messages = fields_.Find("messages");
    if (messages == nullptr || !messages->is_array() || messages->as_array().empty())
      fields_.Fail("messages", "'messages' must be a list of at least one message");
    CheckBlocks(system, "system");
    AddSystem(system, "system");
    if (!fields_.ok()) return {};
    for (std::size_t i = 0; fields_.ok() && i < messages->as_array().size(); ++i)
      AddMessage(messages->as_array()[i], StrCat("messages[", i, "]"));
    if (!fields_.ok()) return {};
    const Json list = Json(std::move(out_));
    return protocol::ReadMessages(fields_, &list, "messages");
  }

 private:
  void Unsupported(const std::string& where, const std::string& type) {
    fields_.FailUnsupported("messages", StrCat(where, ": blocks of type '", base::Shorten(type, 64),
                                               "' are not supported"));
  }

  // The text at `name` of `object`, which is or belongs to a block of `type`; "" after a missing
  // text was rejected.
  std::string RequiredText(const Json& object, const char* name, const char* type,
                           const std::string& where) {
    const Json* value = object.Find(name);
    if (value != nullptr && value->is_string()) return value->as_string();
    fields_.Fail("messages",
                 StrCat(where, ": a block of type '", type, "' needs a text '", name, "'"));
    return "";
  }

  // A text, or the joined text of blocks.
  std::string BlocksText(const Json* content, const std::string& where) {
    if (content == nullptr || content->is_string()) return TextOf(content);
    std::string out;
    if (!content->is_array()) {
      fields_.Fail("messages", StrCat(where, " must be a text or a list of blocks"));
      return out;
    }
    for (const Json& block : content->as_array()) {
      const auto text = BlockText(block, where);
      if (!text.has_value()) return out;
      if (!text->empty()) out += StrCat(out.empty() ? "" : "\n", *text);
    }
    return out;
  }

  // The text that replaces a block of a system text or of a tool's result.
  std::optional<std::string> BlockText(const Json& block, const std::string& where) {
    const std::string type = TextOf(block.Find("type"));
    if (type == "text") {
      std::string text = RequiredText(block, "text", "text", where);
      if (where == "system") protocol::DropBillingLine(fields_, text);
      return text;
    }
    if (type == "document") return DocumentText(block, where);
    if (type == "tool_reference") return ReferencedTool(block, where);
    // An image that an agent's tool has read is left out, and the turn goes on.
    if (type == "image" && where != "system") {
      fields_.LeaveOut("messages.image");
      return "[image left out: this model reads text only]";
    }
    Unsupported(where, type);
    return std::nullopt;
  }

  // The text of {"source": {"type": "text", "data"}, "title", "context"}.
  std::optional<std::string> DocumentText(const Json& block, const std::string& where) {
    const Json* source = block.Find("source");
    const std::string kind = source == nullptr ? "" : TextOf(source->Find("type"));
    if (kind != "text") {
      Unsupported(where, StrCat("document with a source of type ", kind));
      return std::nullopt;
    }
    const std::string title = TextOf(block.Find("title")), context = TextOf(block.Find("context"));
    return StrCat(title, title.empty() ? "" : "\n", context, context.empty() ? "" : "\n",
                  RequiredText(*source, "data", "document", where));
  }

  void FindTools() {
    const Json* tools = fields_.Find("tools");
    if (tools == nullptr || !tools->is_array()) return;
    for (const Json& tool : tools->as_array())
      tools_.emplace_back(TextOf(tool.Find("name")), &tool);
  }

  // The definition of a tool that a tool search found. It is part of the result, so that the prompt
  // before it stays the same; later references give only its name.
  std::optional<std::string> ReferencedTool(const Json& block, const std::string& where) {
    const std::string name = TextOf(block.Find("tool_name"));
    for (const auto& [known, tool] : tools_) {
      if (known != name) continue;
      if (!told_.insert(name).second)
        return Json(Json::Object{{"type", "tool_reference"}, {"tool_name", name}}).Dump();
      const Json* schema = tool->Find("input_schema");
      const Json function =
          Json::Object{{"name", name},
                       {"description", TextOf(tool->Find("description"))},
                       {"parameters", schema == nullptr ? Json(Json::Object{}) : *schema}};
      return Json(Json::Object{{"type", "function"}, {"function", function}}).Dump();
    }
    fields_.Fail("messages", StrCat(where, ": 'tools' has no '", base::Shorten(name, 64), "'"));
    return std::nullopt;
  }

  void AddSystem(const Json* content, const std::string& where) {
    const std::string text = BlocksText(content, where);
    if (!text.empty()) out_.push_back(Json::Object{{"role", "system"}, {"content", text}});
  }

  void AddMessage(const Json& message, const std::string& where) {
    protocol::CheckMembers(fields_, message, "messages", where);
    const std::string role = TextOf(message.Find("role"));
    const Json* content = message.Find("content");
    CheckBlocks(content);
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

  // Reports blocks' members that are not read.
  void CheckBlocks(const Json* content, const char* field = "messages.content") {
    if (content == nullptr || !content->is_array()) return;
    for (const Json& block : content->as_array()) {
      fields_.IgnoreOthers(field, block,
                           {"type", "text", "cache_control", "citations", "id", "name", "input",
                            "caller", "tool_use_id", "tool_name", "content", "is_error", "source",
                            "title", "context", "thinking", "signature", "data"});
      if (TextOf(block.Find("type")) == "tool_result") CheckBlocks(block.Find("content"));
    }
  }

  // Tool results precede the same turn's text.
  void AddUser(const Json::Array& blocks, const std::string& where) {
    std::string text;
    bool has_text = false;
    for (const Json& block : blocks) {
      const std::string type = TextOf(block.Find("type"));
      if (type == "text") {
        text += StrCat(has_text ? "\n" : "", RequiredText(block, "text", "text", where));
        has_text = true;
      } else if (type == "tool_result") {
        AddResult(block, where);
      } else if (type == "document") {
        text += StrCat(has_text ? "\n" : "", DocumentText(block, where).value_or(""));
        has_text = true;
      } else {
        return Unsupported(where, type);
      }
    }
    if (has_text) out_.push_back(Json::Object{{"role", "user"}, {"content", text}});
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
        text += RequiredText(block, "text", "text", where);
      } else if (type == "thinking") {
        thinking += RequiredText(block, "thinking", "thinking", where);
      } else if (type == "tool_use") {
        const Json* input = block.Find("input");
        calls.push_back(Json::Object{
            {"id", RequiredText(block, "id", "tool_use", where)},
            {"type", "function"},
            {"function", Json::Object{{"name", RequiredText(block, "name", "tool_use", where)},
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
  std::vector<std::pair<std::string, const Json*>> tools_;  // by name
  std::set<std::string> told_;  // tools whose definitions are in the messages
};

}  // namespace

Json ReadInput(Fields& fields) { return InputReader(fields).Run(); }

}  // namespace thermocline::anthropic
