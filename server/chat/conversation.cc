#include "server/chat/conversation.h"

#include <algorithm>
#include <cctype>

#include "engine/base/bytes.h"
#include "engine/base/hash.h"
#include "engine/base/strings.h"
#include "server/chat/message_json.h"
#include "server/chat/system_messages.h"

namespace thermocline::chat {
namespace {

// Marks the end of an unfinished answer while the template is rendered. No template changes
// letters.
constexpr const char* kMark = "THERMOCLINEbegunANSWERendsHERE";

// The arguments of a call as JSON text. If a limit cut the call, the text is incomplete.
std::string ArgumentsText(const Json& function) {
  if (const Json* text = function.Find(kArgumentsText)) return TextOf(text);
  const Json* arguments = function.Find("arguments");
  if (arguments == nullptr) return "{}";
  return arguments->is_string() ? arguments->as_string() : arguments->Dump();
}

// A nine-character id of letters and digits derived from `id`.
std::string IdOfNine(const std::string& id) {
  const bool fits = id.size() == 9 && std::all_of(id.begin(), id.end(), [](char c) {
                      return std::isalnum(base::ByteOf(c)) != 0;
                    });
  if (fits) return id;
  std::uint64_t hash = base::HashOf(id).low;
  static constexpr std::string_view kDigits =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::string out;
  for (int i = 0; i < 9; ++i, hash /= kDigits.size()) out.push_back(kDigits[hash % kDigits.size()]);
  return out;
}

class Adapter {
 public:
  struct Options {
    bool marked = false, keep_reasoning = false;
  };
  Adapter(const OutputFormat& format, const Conversation& conversation, const Options& options)
      : format_(format),
        conversation_(conversation),
        marked_(options.marked),
        keep_reasoning_(options.keep_reasoning) {}

  Json Run() {
    Json out = Json::Object{};
    Json::Array messages;
    for (const auto& [key, value] : conversation_.json.as_object()) {
      if (key == "messages") {
        for (const Json& message : PlaceSystemMessages(format_, value.as_array()))
          Add(message, messages);
      } else {
        out.Set(key, value);
      }
    }
    if (conversation_.continues_last && !messages.empty()) {
      Json& last = messages.back();
      if (marked_) last.Set("content", TextOf(last.Find("content")) + kMark);
      if (marked_) out.Set("add_generation_prompt", false);
      if (!marked_) messages.pop_back();
    }
    if (keep_reasoning_) {
      for (const auto& [name, value] : format_.keeps_reasoning)
        if (out.FindRaw(name) == nullptr) out.Set(name, value);
    }
    const auto& tools = conversation_.tools;
    const bool listed = std::any_of(tools.tools.begin(), tools.tools.end(),
                                    [](const Tool& tool) { return tool.listed; });
    if (listed && format_.lists_tools) out.Set(format_.tools_variable, ToolsJson(tools.tools));
    if (listed && !format_.lists_tools && tools.choice.mode != ToolChoice::Mode::kNone)
      ListTools(messages);
    if (!format_.repeated_user) messages = JoinUserMessages(std::move(messages));
    out.Set("messages", std::move(messages));
    return out;
  }

 private:
  void Add(const Json& message, Json::Array& out) {
    if (IsRole(message, "tool")) return AddResult(message, out);
    Json copy = message;
    if (message.Find("tool_calls") != nullptr) AdaptCalls(message, copy);
    if ((format_.harmony || format_.reads_thinking) && message.Find("reasoning_content") != nullptr)
      copy.Set("thinking", *message.Find("reasoning_content"));
    out.push_back(std::move(copy));
  }

  void AdaptCalls(const Json& message, Json& copy) const {
    if (!format_.writes_calls) {
      const std::string text = TextOf(message.Find("content"));
      Json bare = Json::Object{};
      for (const auto& [key, value] : message.as_object())
        if (key != "tool_calls") bare.Set(key, value);
      bare.Set("content", StrCat(text, text.empty() ? "" : "\n",
                                 TextOfCalls(format_.calls, CallsOf(message))));
      copy = std::move(bare);
      return;
    }
    Json::Array calls;
    for (const Json& each : message.Find("tool_calls")->as_array()) {
      Json call = each;
      const Json *function = each.Find("function"), *id = each.Find("id");
      if (format_.ids_of_nine && id != nullptr) call.Set("id", IdOfNine(TextOf(id)));
      if (function != nullptr) call.Set("function", AdaptFunction(*function, copy));
      calls.push_back(std::move(call));
    }
    copy.Set("tool_calls", std::move(calls));
  }

  // A call's function in the form that the template accepts. Templates that write arguments one by
  // one cannot write arguments that are no object, which become text of the message.
  Json AdaptFunction(const Json& function, Json& message) const {
    Json out = Json::Object{};
    for (const auto& [key, value] : function.as_object())
      if (key != kArgumentsText) out.Set(key, value);
    const Json* arguments = function.Find("arguments");  // nullptr also for JSON null
    if (format_.arguments_are_text) {
      out.Set("arguments", ArgumentsText(function));
    } else if (arguments == nullptr) {
      out.Set("arguments", Json::Object{});
    } else if (format_.calls.tagged.has_value() && !arguments->is_object()) {
      AppendContent(message, "\n", ArgumentsText(function));
      out.Set("arguments", Json::Object{});
    }
    return out;
  }

  // Consecutive results are joined into one message if the template has no role for them.
  void AddResult(const Json& message, Json::Array& out) {
    if (format_.writes_results) {
      Json copy = message;
      const Json* id = message.Find("tool_call_id");
      if (format_.ids_of_nine && id != nullptr) copy.Set("tool_call_id", IdOfNine(TextOf(id)));
      in_results_ = false;
      return out.push_back(std::move(copy));
    }
    const std::string text =
        StrCat("<tool_response>\n", TextOf(message.Find("content")), "\n</tool_response>");
    if (in_results_ && !out.empty() && IsRole(out.back(), "user")) {
      return AppendContent(out.back(), "\n", text);
    }
    in_results_ = true;
    out.push_back(Json::Object{{"role", "user"}, {"content", text}});
  }

  // Describes the tools in the system message.
  void ListTools(Json::Array& messages) const {
    std::string text =
        "You may call tools to help with the user's request. Their signatures, one JSON object a "
        "line:\n<tools>\n";
    const Json tools = ToolsJson(conversation_.tools.tools);
    for (const Json& tool : tools.as_array()) text += tool.Dump() + "\n";
    text += "</tools>\nTo call tools, write nothing else than one or more of:\n";
    text += TextOfCalls(format_.calls, {{.id = "", .name = "NAME", .arguments = "{...}"}});
    const char* role = format_.system_role ? "system" : "user";
    if (!messages.empty() && IsRole(messages[0], role)) {
      messages[0].Set("content", StrCat(text, "\n\n", TextOf(messages[0].Find("content"))));
    } else {
      messages.insert(messages.begin(), Json::Object{{"role", role}, {"content", text}});
    }
  }

  const OutputFormat& format_;
  const Conversation& conversation_;
  const bool marked_, keep_reasoning_;
  bool in_results_ = false;
};

}  // namespace

std::vector<ToolCall> CallsOf(const Json& message) {
  std::vector<ToolCall> out;
  const Json* calls = message.Find("tool_calls");
  if (calls == nullptr || !calls->is_array()) return out;
  for (const Json& call : calls->as_array()) {
    const Json* function = call.Find("function");
    if (function == nullptr) continue;
    out.push_back({.id = TextOf(call.Find("id")),
                   .name = TextOf(function->Find("name")),
                   .arguments = ArgumentsText(*function)});
  }
  return out;
}

std::string TextOfCalls(const CallFormat& format, const std::vector<ToolCall>& calls) {
  std::string out;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const CallPieces& pieces = i == 0 || format.next.empty() ? format.first : format.next;
    for (const CallPiece& piece : pieces) {
      switch (piece.kind) {
        case CallPiece::Kind::kText:
          out += piece.text;
          break;
        case CallPiece::Kind::kName:
          out += calls[i].name;
          break;
        case CallPiece::Kind::kArguments:
          out += calls[i].arguments;
          break;
        case CallPiece::Kind::kId:
          out += IdOfNine(calls[i].id);
          break;
        case CallPiece::Kind::kIndex:
          out += std::to_string(i);
          break;
      }
    }
  }
  return calls.empty() ? out : out + format.end;
}

Json ForTemplate(const OutputFormat& format, const Conversation& conversation,
                 bool keep_reasoning) {
  return Adapter(format, conversation, {.keep_reasoning = keep_reasoning}).Run();
}

Json ForTemplateMarked(const OutputFormat& format, const Conversation& conversation,
                       bool keep_reasoning) {
  return Adapter(format, conversation, {.marked = true, .keep_reasoning = keep_reasoning}).Run();
}

std::optional<std::size_t> FindMark(const std::string& rendered) {
  const std::size_t at = rendered.rfind(kMark);
  return at == std::string::npos ? std::nullopt : std::optional(at);
}

std::string BegunText(const OutputFormat& format, const Conversation& conversation) {
  const Json::Array& messages = conversation.json.Find("messages")->as_array();
  const Json& last = messages.back();
  const std::string reasoning = TextOf(last.Find("reasoning_content"));
  std::string out;
  if (!reasoning.empty() && format.reasoning.known())
    out = StrCat(format.reasoning.open, reasoning, format.reasoning.close, "\n\n");
  return StrCat(out, format.content_open, TextOf(last.Find("content")));
}

}  // namespace thermocline::chat
