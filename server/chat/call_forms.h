// The table of lenient forms: the forms of calls that models write besides their chat template's.
// A form is one row: its opening, the parser of its body, and its name in metrics.
// Source: the forms that llama.cpp, Ollama, vLLM, SGLang and their users report.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "server/chat/json_scan.h"
#include "server/chat/tools.h"

namespace thermocline::chat {

// The form of an answer's calls, for metrics. kTolerated: the template's own with other white
// space, marks or members.
enum class CallForm { kNative, kTolerated, kJson, kFence, kPython, kXml, kForeign };
const char* CallFormName(CallForm form);

// The text behind an opening.
enum class CallBody {
  kNone,    // further rows: the opening is only a frame
  kObject,  // a JSON object; the opening is its first byte
  kList,    // a list of JSON objects or of Python calls; the opening has its bracket
  kFence,   // a code fence's language and body
  kTagged,  // name and parameters between tags
  kValue,   // an object, a list, NAME{...} or NAME(...)
  kNever    // the text is not a call
};

// The tags of CallBody::kTagged, behind the opening: NAME name_end, then parameter KEY key_end
// VALUE parameter_end for each parameter, then end.
struct CallTags {
  std::string_view name_end, parameter, key_end, parameter_end, end;
};

struct CallFormRow {
  std::string_view name;     // in docs/tools.md
  std::string_view opening;  // kAnyTool in it stands for the name of a tool
  CallBody body = CallBody::kNone;
  CallForm form = CallForm::kForeign;
  CallTags tags = {};
  bool whole = false;  // only as the whole answer
};
inline constexpr std::string_view kAnyTool = "NAME";
std::span<const CallFormRow> CallForms();

// The row whose opening is at the start of `text`, with the bytes before its body; nullptr: none.
// `part`: more text may complete the opening of another row.
struct OpenedForm {
  const CallFormRow* row = nullptr;
  std::size_t bytes = 0;
  bool part = false;
};
OpenedForm MatchCallForm(std::string_view text, const std::vector<Tool>& tools);

// The bytes of a separator, closing tag or mark of `marks` at the start of `text`; 0: none.
// `part`: more text may complete one.
struct MatchedMark {
  std::size_t bytes = 0;
  bool part = false;
};
MatchedMark MatchSeparator(std::string_view text, std::span<const std::string_view> marks);

inline constexpr std::string_view kFenceMark = "```";
// True if a fence of `language` may hold calls; `part`: `language` is only its start.
bool MayHoldCalls(std::string_view language, bool part);

// The first position in `text` at which a form begins, or npos. `part`: the text ends within the
// opening. `begins`: `text` is at a line's start; `prose`: bytes of the answer's text before it.
struct FoundForm {
  std::size_t at = kNowhere;
  bool part = false;
};
struct FormSearch {
  bool begins = false;
  std::size_t prose = 0;
};
inline constexpr std::size_t kProseBytesMax = 200;  // before all forms but fences
FoundForm FindCallForm(std::string_view text, const FormSearch& search,
                       const std::vector<Tool>& tools);

}  // namespace thermocline::chat
