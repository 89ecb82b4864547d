#include "server/chat/call_reader.h"

#include <cctype>
#include <string>
#include <utility>

#include "engine/base/bytes.h"
#include "engine/base/index.h"
#include "server/chat/object_scan.h"
#include "server/chat/python_literals.h"
#include "server/chat/tool_match.h"

namespace thermocline::chat {
namespace {

constexpr std::size_t kTagBytesMax = 256;  // a parameter's name, and attributes that are ignored

bool IsNameByte(char c) {
  return std::isalnum(base::ByteOf(c)) != 0 || c == '_' || c == '-' || c == '.' || c == ':';
}

// `text` with the closing brackets that it lacks, unless a string is open.
std::string Closed(std::string_view text) {
  JsonScan scan;
  for (const char c : text) scan.Push(c);
  return std::string(text) + scan.Closing();
}

// Parses the calls of one text. Either all parts are calls, or the text is none.
class CallReader {
 public:
  CallReader(std::string_view text, TextEnd end, const ReadParams& params)
      : cursor_(text, end), params_(params), open_(end == TextEnd::kOpen) {}

  ReadCalls Run() {
    out_.taken = Elements();
    if (out_.taken == Taken::kNo) {
      out_.calls.clear();
      if (!named_) out_.rule = CallRule::kNone;
    }
    return std::move(out_);
  }

 private:
  Taken Reject(CallRule rule) {
    if (out_.rule == CallRule::kNone) out_.rule = rule;
    named_ = named_ || rule == CallRule::kName;
    return Taken::kNo;
  }
  // The outcome where the text ends within a call; `rule`: the one that an ended answer breaks.
  Taken Missing(CallRule rule = CallRule::kMembers) { return open_ ? Taken::kMore : Reject(rule); }
  // `taken`, with the rule that its kNo breaks.
  Taken By(CallRule rule, Taken taken) { return taken == Taken::kNo ? Reject(rule) : taken; }

  // Parses forms with separators between them, until the text's or the fence's end.
  Taken Elements() {
    while (true) {
      if (SkipBetween() == Taken::kMore) return Taken::kMore;
      if (out_.row == nullptr) out_.skipped = cursor_.at();
      if (cursor_.at_end()) {
        if (in_fence_) return Missing(CallRule::kFence);
        return out_.calls.empty() && !params_.further ? Missing() : Taken::kDone;
      }
      if (in_fence_) {
        const Taken close = cursor_.Take(kFenceMark);
        if (close == Taken::kDone && out_.calls.empty()) return Reject(CallRule::kFence);
        if (close != Taken::kNo) return close;
      }
      const Taken taken = Element();
      if (taken != Taken::kDone || out_.begun.has_value()) return taken;
    }
  }

  // Skips separators, closing tags and, behind a call, closing brackets.
  Taken SkipBetween() {
    while (!cursor_.at_end()) {
      const bool behind = params_.further || !out_.calls.empty();
      if (behind && std::string_view("}])").find(cursor_.Peek()) != kNowhere) {
        cursor_.Skip(1);
        continue;
      }
      const MatchedMark found = MatchSeparator(cursor_.Rest(), params_.marks);
      if (found.part && open_) return Taken::kMore;
      if (found.bytes == 0) break;
      cursor_.Skip(found.bytes);
    }
    return Taken::kDone;
  }

  Taken Element() {
    const OpenedForm opened = MatchCallForm(cursor_.Rest(), params_.tools);
    if (opened.part && open_) return Taken::kMore;
    if (opened.row == nullptr) {
      if (in_fence_ && python_fence_) return Named();
      const bool fence = out_.row != nullptr && out_.row->body == CallBody::kFence;
      return Reject(fence ? CallRule::kFence : CallRule::kPlace);
    }
    const CallFormRow& row = *opened.row;
    if (row.whole && !params_.begins && out_.row == nullptr) return Reject(CallRule::kPlace);
    if (out_.row == nullptr) {
      out_.row = &row;
      out_.form = row.form;
    }
    cursor_.Skip(row.body == CallBody::kObject ? 0 : opened.bytes);
    switch (row.body) {
      case CallBody::kNone:
        return Taken::kDone;
      case CallBody::kObject:
        return Object();
      case CallBody::kList:
        return List();
      case CallBody::kFence:
        return in_fence_ ? Reject(CallRule::kFence) : Fence();
      case CallBody::kTagged:
        return Tagged(row.tags);
      case CallBody::kValue:
        return Value();
      case CallBody::kNever:
        return Reject(CallRule::kFence);
    }
    return Taken::kNo;
  }

  // True if the form has a mark of its own, which text hardly has by accident.
  bool marked() const {
    return out_.row != nullptr &&
           (out_.row->form == CallForm::kForeign || out_.row->form == CallForm::kXml);
  }
  bool streams() const {
    return out_.calls.empty() && !in_fence_ && (params_.begins || params_.further || marked());
  }
  bool takes_python() const {
    return in_fence_ ? python_fence_ : params_.begins || params_.further || marked();
  }

  Taken Fence() {
    const std::string_view rest = cursor_.Rest();
    const std::size_t line = rest.find('\n');
    std::string_view language = rest.substr(0, line);
    language = language.substr(0, language.find_last_not_of(kBlank) + 1);
    const bool part = line == kNowhere;
    if (!MayHoldCalls(language, part)) return Reject(CallRule::kFence);
    if (part) return Missing(CallRule::kFence);
    cursor_.Skip(line + 1);
    python_fence_ = language == "tool_code";
    in_fence_ = true;
    const Taken taken = Elements();
    in_fence_ = false;
    return taken;
  }

  Taken Object() {
    const std::size_t begin = cursor_.at();
    ObjectHead head;
    const Taken taken = ScanObject(cursor_, params_.tools, streams(), head);
    named_ = named_ || head.tool != nullptr;
    if (head.begun) return Begin(*head.tool, head.objects);
    if (taken == Taken::kMore) return taken;
    if (taken == Taken::kNo && head.rule != CallRule::kMembers) return Reject(head.rule);
    const auto value = Parsed(taken, begin);
    if (!value.has_value()) return Reject(CallRule::kMembers);
    const ObjectCall call = ReadCallObject(*value, params_.tools);
    return call.tool == nullptr ? Reject(call.rule) : Add(*call.tool, call.arguments);
  }

  // The JSON from `begin` to the cursor or, if it is not complete, to the answer's end.
  std::optional<Json> Parsed(Taken taken, std::size_t begin) {
    if (taken == Taken::kNo) {
      if (!cursor_.closes()) return std::nullopt;
      cursor_.Skip(cursor_.Rest().size());
    }
    const std::string_view text = cursor_.From(begin);
    auto value = base::ParseJson(taken == Taken::kNo ? Closed(text) : std::string(text));
    if (!value.ok()) return std::nullopt;
    return *std::move(value);
  }

  // Parses a list of objects or calls from behind its bracket.
  Taken List() {
    cursor_.SkipSpace();
    if (cursor_.at_end()) return Missing();
    const bool objects = cursor_.Peek() == '{';
    if (!objects && !takes_python()) return Reject(CallRule::kPlace);
    while (true) {
      const Taken taken = objects && cursor_.Peek() == '{' ? Object()
                          : objects                        ? Reject(CallRule::kMembers)
                                                           : Named();
      if (taken != Taken::kDone || out_.begun.has_value()) return taken;
      cursor_.SkipSpace();
      if (cursor_.at_end()) return cursor_.closes() ? Taken::kDone : Missing();
      if (cursor_.Take("]") == Taken::kDone) return Taken::kDone;
      if (cursor_.Take(",") != Taken::kDone) return Reject(CallRule::kMembers);
      cursor_.SkipSpace();
      if (cursor_.at_end()) return Missing();
    }
  }

  Taken Value() {
    cursor_.SkipSpace();
    if (cursor_.at_end()) return Missing();
    if (cursor_.Peek() == '{') return Object();
    return cursor_.Take("[") == Taken::kDone ? List() : Named();
  }

  // Parses NAME{...}, NAME[ARGS]{...}, NAME(...) or print(NAME(...)).
  Taken Named() {
    cursor_.SkipSpace();
    if (cursor_.at_end()) return Missing();
    const std::string_view rest = cursor_.Rest();
    const std::size_t size = std::find_if_not(rest.begin(), rest.end(), IsNameByte) - rest.begin();
    if (size > kToolNameBytesMax || size == 0) return Reject(CallRule::kPlace);
    if (size == rest.size()) return Missing();
    std::string_view name = rest.substr(0, size);
    cursor_.Skip(size);
    if (name == "print" && cursor_.Take("(") == Taken::kDone) return Printed();
    if (name.starts_with("call:")) name.remove_prefix(5);
    const Tool* tool = FindTool(name, params_.tools);
    constexpr std::string_view kCall = ".call";
    if (tool == nullptr && name.ends_with(kCall))
      tool = FindTool(name.substr(0, name.size() - kCall.size()), params_.tools);
    if (tool != nullptr) return ArgumentsOf(*tool);
    const bool call = std::string_view("({").find(cursor_.Peek()) != kNowhere;
    return Reject(call ? CallRule::kName : CallRule::kPlace);
  }

  Taken Printed() {
    Taken taken = Named();
    if (taken != Taken::kDone || out_.begun.has_value()) return taken;
    cursor_.SkipSpace();
    if (cursor_.at_end() && cursor_.closes()) return Taken::kDone;
    return By(CallRule::kLiterals, cursor_.Take(")"));
  }

  Taken ArgumentsOf(const Tool& tool) {
    named_ = true;
    cursor_.SkipSpace();
    Taken mark = cursor_.Take("[CALL_ID]");
    std::string_view id;
    mark = mark == Taken::kDone ? cursor_.TakeUntil("[ARGS]", kTagBytesMax, id)
           : mark == Taken::kNo ? cursor_.Take("[ARGS]")
                                : mark;
    if (mark == Taken::kMore) return mark;
    cursor_.SkipSpace();
    if (cursor_.at_end()) return Missing();
    if (cursor_.Peek() == '{') return ObjectOf(tool);
    if (cursor_.Peek() != '(' || !takes_python()) return Reject(CallRule::kPlace);
    cursor_.Skip(1);
    Json arguments;
    const Taken taken = By(CallRule::kLiterals, TakePythonArguments(cursor_, tool, arguments));
    if (taken != Taken::kDone) return taken;
    if (out_.form == CallForm::kJson || out_.form == CallForm::kFence)
      out_.form = CallForm::kPython;
    return Add(tool, arguments.Dump());
  }

  // Parses arguments that are an object.
  Taken ObjectOf(const Tool& tool) {
    Taken taken = By(CallRule::kMembers, BeginsArguments(cursor_, tool));
    if (taken != Taken::kDone) return taken;
    if (streams()) return Begin(tool, 0);
    const std::size_t begin = cursor_.at();
    taken = SkipJsonValue(cursor_);
    if (taken == Taken::kMore) return taken;
    const auto value = Parsed(taken, begin);
    return value.has_value() ? Add(tool, value->Dump()) : Reject(CallRule::kMembers);
  }

  Taken Tagged(const CallTags& tags) {
    std::string_view name;
    Taken taken = By(CallRule::kName, cursor_.TakeUntil(tags.name_end, kToolNameBytesMax, name));
    if (taken == Taken::kDone) taken = TagEnd(tags.name_end);
    if (taken != Taken::kDone) return taken;
    const Tool* tool = FindTool(name, params_.tools);
    if (tool == nullptr) return Reject(CallRule::kName);
    named_ = true;
    Json arguments = Json::Object{};
    while (true) {
      cursor_.SkipSpace();
      if (cursor_.at_end() && cursor_.closes()) break;
      if (cursor_.at_end()) return Missing();
      taken = cursor_.Take(tags.end);
      if (taken == Taken::kDone) break;
      if (taken == Taken::kMore) return taken;
      taken = By(CallRule::kMembers, Parameter(tags, *tool, arguments));
      if (taken != Taken::kDone) return taken;
    }
    return Add(*tool, arguments.Dump());
  }

  Taken Parameter(const CallTags& tags, const Tool& tool, Json& arguments) {
    std::string_view key, raw;
    Taken taken = cursor_.Take(tags.parameter);
    if (taken == Taken::kDone) taken = cursor_.TakeUntil(tags.key_end, kTagBytesMax, key);
    if (taken == Taken::kDone) taken = TagEnd(tags.key_end);
    if (taken == Taken::kDone) taken = cursor_.TakeUntil(tags.parameter_end, kNowhere, raw);
    if (taken != Taken::kDone) return taken;
    arguments.Set(key, TaggedValue(tool, std::string(key), raw));
    return taken;
  }

  // Takes the end of a tag whose attribute `mark` ended.
  Taken TagEnd(std::string_view mark) {
    std::string_view attributes;
    return mark == ">" ? Taken::kDone : cursor_.TakeUntil(">", kTagBytesMax, attributes);
  }

  Taken Begin(const Tool& tool, int objects) {
    if (tool.strict) return Reject(CallRule::kStrict);
    out_.begun = {.tool = &tool, .at = cursor_.at(), .objects = objects};
    return Taken::kDone;
  }

  Taken Add(const Tool& tool, std::string arguments) {
    if (tool.strict) return Reject(CallRule::kStrict);
    if (base::IntSize(out_.calls) == kLenientCallsMax) return Reject(CallRule::kSeveral);
    out_.calls.push_back({.id = "", .name = tool.name, .arguments = std::move(arguments)});
    return Taken::kDone;
  }

  CallCursor cursor_;
  const ReadParams& params_;
  const bool open_;
  ReadCalls out_;
  bool in_fence_ = false, python_fence_ = false;
  bool named_ = false;  // a name was read, so the text looked like a call
};

}  // namespace

ReadCalls ReadLenientCalls(std::string_view text, TextEnd end, const ReadParams& params) {
  return CallReader(text, end, params).Run();
}

Taken TakeObjectTails(CallCursor& cursor, int& objects) {
  while (objects > 0) {
    cursor.SkipSpace();
    if (cursor.at_end()) return cursor.Missing();
    if (cursor.Take("}") == Taken::kDone) {
      --objects;
      continue;
    }
    if (cursor.Take(",") != Taken::kDone) return Taken::kNo;
    cursor.SkipSpace();
    if (cursor.at_end()) return cursor.Missing();
    if (cursor.Peek() != '"') return Taken::kNo;
    std::string_view key;
    Taken taken = TakeJsonString(cursor, key);
    if (taken != Taken::kDone) return taken;
    cursor.SkipSpace();
    taken = cursor.Take(":");
    if (taken != Taken::kDone) return taken;
    cursor.SkipSpace();
    if (cursor.at_end()) return cursor.Missing();
    taken = SkipJsonValue(cursor);
    if (taken != Taken::kDone) return taken;
  }
  return Taken::kDone;
}

}  // namespace thermocline::chat
