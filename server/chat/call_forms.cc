#include "server/chat/call_forms.h"

#include <algorithm>
#include <array>

#include "engine/base/index.h"
#include "server/chat/call_cursor.h"

namespace thermocline::chat {
namespace {

using Body = CallBody;
using Form = CallForm;

constexpr CallTags kQwenTags = {">", "<parameter=", ">", "</parameter>", "</function>"};
constexpr CallTags kFunctionTags = {"\"", "<parameter name=\"", "\"", "</parameter>",
                                    "</function>"};
constexpr CallTags kInvokeTags = {"\"", "<parameter name=\"", "\"", "</parameter>", "</invoke>"};

// An opening stands before its own beginnings.
constexpr CallFormRow kRows[] = {
    {.name = "object", .opening = "{", .body = Body::kObject, .form = Form::kJson},
    {.name = "fence", .opening = kFenceMark, .body = Body::kFence, .form = Form::kFence},
    {.name = "tilde fence", .opening = "~~~", .body = Body::kNever},
    {.name = "Qwen's tags",
     .opening = "<function=",
     .body = Body::kTagged,
     .form = Form::kXml,
     .tags = kQwenTags},
    {.name = "function tags",
     .opening = "<function name=\"",
     .body = Body::kTagged,
     .tags = kFunctionTags},
    {.name = "invoke tags",
     .opening = "<invoke name=\"",
     .body = Body::kTagged,
     .tags = kInvokeTags},
    {.name = "tool_call tag", .opening = "<tool_call>"},
    {.name = "Gemma's mark", .opening = "<|tool_call>"},
    {.name = "tools tag", .opening = "<tools>"},
    {.name = "tool_calls tag", .opening = "<tool_calls>"},
    {.name = "function_calls tag", .opening = "<function_calls>"},
    {.name = "Llama 3's mark", .opening = "<|python_tag|>", .body = Body::kValue},
    {.name = "Llama 4's mark", .opening = "<|python_start|>", .body = Body::kValue},
    {.name = "Mistral's mark", .opening = "[TOOL_CALLS]", .body = Body::kValue},
    {.name = "Mistral's arguments", .opening = "NAME[ARGS]", .body = Body::kValue},
    {.name = "Phi's list", .opening = "functools[", .body = Body::kList},
    {.name = "rendered call", .opening = "[Calling tool:", .body = Body::kValue},
    {.name = "assigned call",
     .opening = "tool_code =",
     .body = Body::kValue,
     .form = Form::kPython,
     .whole = true},
    {.name = "call: prefix",
     .opening = "call:",
     .body = Body::kValue,
     .form = Form::kPython,
     .whole = true},
    {.name = "list", .opening = "[", .body = Body::kList, .form = Form::kJson},
};

constexpr std::array<std::string_view, 14> kClosings = {
    "</tool_call>", "</tool_calls>",     "</tools>",          "</tool>",        "</function>",
    "</invoke>",    "</function_calls>", "<tool_call|>",      "<|/tool_call|>", "<|python_end|>",
    "<|eom_id|>",   "<|eot_id|>",        "<|tool_call_end|>", "[/TOOL_CALLS]"};
constexpr std::array<std::string_view, 7> kLanguages = {"",          "json",      "xml",   "tool",
                                                        "tool_call", "tool_code", "python"};

// Compares `text` with an opening behind its first `skip` bytes.
OpenedForm MatchOpening(std::string_view text, const CallFormRow& row, std::size_t skip) {
  const std::string_view opening = row.opening.substr(skip);
  if (text.starts_with(opening)) return {.row = &row, .bytes = opening.size()};
  return {.part = opening.starts_with(text)};
}

OpenedForm MatchRow(std::string_view text, const CallFormRow& row, const std::vector<Tool>& tools) {
  if (!row.opening.starts_with(kAnyTool)) return MatchOpening(text, row, 0);
  OpenedForm out;
  for (const Tool& tool : tools) {
    if (text.size() < tool.name.size()) out.part = out.part || tool.name.starts_with(text);
    if (!text.starts_with(tool.name)) continue;
    const OpenedForm one = MatchOpening(text.substr(tool.name.size()), row, kAnyTool.size());
    if (one.row != nullptr) return {.row = &row, .bytes = 0};
    out.part = out.part || one.part;
  }
  return out;
}

}  // namespace

const char* CallFormName(CallForm form) {
  static constexpr const char* kNames[] = {"native", "tolerated", "json",   "fence",
                                           "python", "xml",       "foreign"};
  return kNames[base::Index(form)];
}

std::span<const CallFormRow> CallForms() { return kRows; }

OpenedForm MatchCallForm(std::string_view text, const std::vector<Tool>& tools) {
  OpenedForm out;
  for (const CallFormRow& row : kRows) {
    const OpenedForm one = MatchRow(text, row, tools);
    out.part = out.part || (one.row == nullptr && one.part);
    if (one.row != nullptr) return {.row = one.row, .bytes = one.bytes, .part = out.part};
  }
  return out;
}

MatchedMark MatchSeparator(std::string_view text, std::span<const std::string_view> marks) {
  if (text.empty()) return {};
  if (kBlank.find(text[0]) != kNowhere || text[0] == ',' || text[0] == ';') return {.bytes = 1};
  MatchedMark out;
  const auto match = [&](std::string_view mark) {
    if (mark.empty()) return;
    if (text.starts_with(mark)) out.bytes = std::max(out.bytes, mark.size());
    out.part = out.part || (text.size() < mark.size() && mark.starts_with(text));
  };
  for (const std::string_view mark : kClosings) match(mark);
  for (const std::string_view mark : marks) match(mark);
  return out;
}

bool MayHoldCalls(std::string_view language, bool part) {
  return std::any_of(kLanguages.begin(), kLanguages.end(), [&](std::string_view known) {
    return part ? known.starts_with(language) : known == language;
  });
}

FoundForm FindCallForm(std::string_view text, const FormSearch& search,
                       const std::vector<Tool>& tools) {
  bool line_begins = search.begins;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '\n') {
      line_begins = true;
      continue;
    }
    if (c == ' ' || c == '\t' || c == '\r') continue;
    if (!line_begins) continue;
    line_begins = false;
    const std::string_view rest = text.substr(at);
    const OpenedForm found = MatchCallForm(rest, tools);
    const bool fence = c == '`' || c == '~';
    if (search.prose + at > kProseBytesMax && !fence) continue;
    if (found.row != nullptr || found.part) return {.at = at, .part = found.row == nullptr};
  }
  return {};
}

}  // namespace thermocline::chat
