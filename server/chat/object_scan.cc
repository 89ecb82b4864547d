#include "server/chat/object_scan.h"

#include <array>

#include "server/chat/message_json.h"
#include "server/chat/tool_match.h"

namespace thermocline::chat {
namespace {

constexpr std::array<std::string_view, 6> kCallKeys = {"name",     "arguments", "parameters",
                                                       "function", "type",      "id"};

// True if a string with this start may be a key of a call's object.
bool MayBeKey(std::string_view start, const std::vector<Tool>& tools) {
  const auto begins = [start](std::string_view key) { return key.starts_with(start); };
  return std::any_of(kCallKeys.begin(), kCallKeys.end(), begins) ||
         std::any_of(tools.begin(), tools.end(),
                     [&](const Tool& tool) { return begins(tool.name); }) ||
         begins("functions.") || begins("default_api.") || start.starts_with("functions.") ||
         start.starts_with("default_api.");
}

// Scans one object and those around its arguments.
class ObjectScanner {
 public:
  ObjectScanner(CallCursor& cursor, const std::vector<Tool>& tools, bool stop, ObjectHead& head)
      : cursor_(cursor), tools_(tools), stop_(stop), head_(head) {}

  // Requires: the cursor is at "{".
  Taken Object() {
    ++head_.objects;
    cursor_.Skip(1);
    for (bool first = true;; first = false) {
      cursor_.SkipSpace();
      if (cursor_.at_end()) return cursor_.Missing();
      if (first && cursor_.Peek() == '}') break;
      Taken taken = Member(first);
      if (taken != Taken::kDone || head_.begun) return taken;
      cursor_.SkipSpace();
      if (cursor_.at_end()) return cursor_.Missing();
      if (cursor_.Peek() == '}') break;
      taken = cursor_.Take(",");
      if (taken != Taken::kDone) return taken;
    }
    cursor_.Skip(1);
    --head_.objects;
    return Taken::kDone;
  }

 private:
  Taken Reject(CallRule rule) {
    head_.rule = rule;
    return Taken::kNo;
  }

  Taken Member(bool first) {
    if (cursor_.Peek() != '"') return Taken::kNo;
    const std::string_view rest = cursor_.Rest().substr(1);
    std::string_view key;
    Taken taken = TakeJsonString(cursor_, key);
    if (taken != Taken::kDone) return MayBeKey(rest, tools_) ? taken : RejectKey();
    if (!KnownKey(key, first)) return RejectKey();
    cursor_.SkipSpace();
    taken = cursor_.Take(":");
    if (taken != Taken::kDone) return taken;
    cursor_.SkipSpace();
    if (cursor_.at_end()) return cursor_.Missing();
    if (key == "name") return Name();
    if (key == "arguments" || key == "parameters") return Arguments();
    if (key == "function" && head_.objects == 1 && cursor_.Peek() == '{') return Object();
    if (key == "function") return Reject(CallRule::kMembers);
    return SkipJsonValue(cursor_);
  }

  bool KnownKey(std::string_view key, bool first) const {
    if (std::find(kCallKeys.begin(), kCallKeys.end(), key) != kCallKeys.end()) return true;
    return first && FindTool(key, tools_) != nullptr;
  }
  Taken RejectKey() {
    return Reject(head_.tool != nullptr ? CallRule::kOtherMembers : CallRule::kMembers);
  }

  Taken Name() {
    if (cursor_.Peek() != '"') return Taken::kNo;
    std::string_view name;
    const std::string_view rest = cursor_.Rest();
    const Taken taken = TakeJsonString(cursor_, name);
    if (taken == Taken::kMore && rest.size() > kToolNameBytesMax) return Reject(CallRule::kName);
    if (taken != Taken::kDone) return taken;
    head_.tool = FindTool(name, tools_);
    return head_.tool == nullptr ? Reject(CallRule::kName) : Taken::kDone;
  }

  Taken Arguments() {
    const char c = cursor_.Peek();
    if (c != '{' && c != '"') return Taken::kNo;
    if (c == '"' || head_.tool == nullptr) return SkipJsonValue(cursor_);
    const Taken begins = BeginsArguments(cursor_, *head_.tool);
    if (begins != Taken::kDone) return begins;
    if (!stop_) return SkipJsonValue(cursor_);
    head_.begun = true;
    return Taken::kDone;
  }

  CallCursor& cursor_;
  const std::vector<Tool>& tools_;
  const bool stop_;
  ObjectHead& head_;
};

bool HasOnly(const Json& object, std::initializer_list<std::string_view> known) {
  return std::all_of(object.as_object().begin(), object.as_object().end(),
                     [known](const auto& member) {
                       return std::find(known.begin(), known.end(), member.first) != known.end();
                     });
}

// Reads {"NAME": {...}}.
ObjectCall ReadNamedMember(const Json& object, const std::vector<Tool>& tools) {
  if (object.as_object().size() != 1) return {.rule = CallRule::kMembers};
  const auto& [name, arguments] = object.as_object()[0];
  const Tool* tool = FindTool(name, tools);
  if (tool == nullptr) return {.rule = CallRule::kName};
  if (!arguments.is_object() || !FitsSchema(*tool, arguments)) return {.rule = CallRule::kMembers};
  return {.tool = tool, .arguments = arguments.Dump()};
}

}  // namespace

ObjectCall ReadCallObject(const Json& object, const std::vector<Tool>& tools) {
  if (!object.is_object()) return {.rule = CallRule::kMembers};
  if (const Json* function = object.Find("function");
      function != nullptr && function->is_object()) {
    if (!HasOnly(object, {"id", "type", "function"})) return {.rule = CallRule::kOtherMembers};
    return ReadCallObject(*function, tools);
  }
  const Json* name = object.Find("name");
  if (name == nullptr) return ReadNamedMember(object, tools);
  if (!name->is_string()) return {.rule = CallRule::kMembers};
  const Tool* tool = FindTool(name->as_string(), tools);
  if (tool == nullptr) return {.rule = CallRule::kName};
  if (!HasOnly(object, {"id", "type", "name", "arguments", "parameters"}))
    return {.rule = CallRule::kOtherMembers};
  const Json* arguments = object.Find("arguments");
  if (arguments == nullptr) arguments = object.Find("parameters");
  if (arguments == nullptr && RequiredOf(*tool).empty()) return {.tool = tool, .arguments = "{}"};
  if (arguments != nullptr && arguments->is_object())
    return {.tool = tool, .arguments = arguments->Dump()};
  const auto parsed = base::ParseJson(TextOf(arguments));
  if (!parsed.ok() || !parsed->is_object()) return {.rule = CallRule::kMembers};
  return {.tool = tool, .arguments = parsed->Dump()};
}

Taken ScanObject(CallCursor& cursor, const std::vector<Tool>& tools, bool stop_at_arguments,
                 ObjectHead& head) {
  return ObjectScanner(cursor, tools, stop_at_arguments, head).Object();
}

Taken TakeJsonString(CallCursor& cursor, std::string_view& out) {
  const std::string_view rest = cursor.Rest();
  for (std::size_t i = 1; i < rest.size(); ++i) {
    if (rest[i] == '\\') {
      ++i;
    } else if (rest[i] == '"') {
      out = rest.substr(1, i - 1);
      cursor.Skip(i + 1);
      return Taken::kDone;
    }
  }
  return cursor.Missing();
}

Taken SkipJsonValue(CallCursor& cursor) {
  const char c = cursor.Peek();
  std::string_view text;
  if (c == '"') return TakeJsonString(cursor, text);
  const std::string_view rest = cursor.Rest();
  const bool brackets = c == '{' || c == '[';
  const std::size_t end =
      brackets ? EndOfJson(rest, 0) : rest.find_first_not_of("+-.0123456789Eaeflnrstu");
  if (end == kNowhere) return cursor.Missing();
  if (end == 0) return Taken::kNo;
  cursor.Skip(end);
  return Taken::kDone;
}

Taken BeginsArguments(const CallCursor& cursor, const Tool& tool) {
  CallCursor inner = cursor;
  inner.Skip(1);
  inner.SkipSpace();
  if (inner.at_end()) return inner.closes() ? Taken::kDone : inner.Missing();
  if (inner.Peek() == '}') return Taken::kDone;
  if (inner.Peek() != '"') return Taken::kNo;
  std::string_view key;
  const Taken taken = TakeJsonString(inner, key);
  if (taken != Taken::kDone) return taken;
  const bool keyword =
      key == "type" || key == "properties" || key == "required" || key == "$schema";
  return keyword && !HasParameter(tool, key) ? Taken::kNo : Taken::kDone;
}

}  // namespace thermocline::chat
