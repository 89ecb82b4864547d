// Calls of tools that a model writes in another form than its chat template's: objects of JSON,
// bare or in a code fence, and Qwen's tags without the opening one. Small models do so often.
//
// A model that writes calls as text is understood; an example in a code block is not a call. The
// rules R2 to R6 and R13 say what is accepted:
//   R2  the name is one of the request's tools, byte for byte; a prefix "functions." or
//       "default_api." and a suffix ":N" may be around it
//   R3  an object has a name, and "arguments" or "parameters" with an object or its JSON in a
//       string; a tool without required parameters needs none; {"NAME": {...}} alone counts, too
//   R4  no other members but "id" and "type"
//   R5  bare objects stand at the answer's begin, or at the begin of a line behind at most
//       kProseBytesMax of text; nothing follows them but further calls and stray closing tags
//   R6  a fence begins a line, is the last thing of the answer, and holds nothing but calls
//   R13 brackets that are open at the end of the answer are closed, a string never is
// Source: the forms and the false positives that llama.cpp, Ollama, vLLM and their users report.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"
#include "server/chat/message_part.h"
#include "server/chat/tools.h"

namespace thermocline::chat {

// The form in which a call was written: that of the template, or one of the lenient ones.
enum class CallForm { kNative, kJson, kFence, kXml };
const char* CallFormName(CallForm form);
// The rule that turned a candidate into text.
enum class CallRule { kNone, kName, kMembers, kOtherMembers, kPlace, kFence };
const char* CallRuleName(CallRule rule);

inline constexpr std::size_t kProseBytesMax = 200;
inline constexpr std::size_t kCandidateBytesMax = 64 << 10;  // then it is text

// The first place of `text` at which a lenient form may begin, or npos. `begin`: the answer begins
// with `text`; else a line may be under way. `prose`: bytes of the answer's text before it.
struct CandidateSearch {
  bool begin = false;
  std::size_t prose = 0;
};
std::size_t FindCandidate(std::string_view text, const CandidateSearch& search);

// True if more text may make calls of `candidate`, which begins at a place that FindCandidate gave.
bool MayBecomeCalls(std::string_view candidate, const std::vector<Tool>& tools);

// The calls that a whole answer's `candidate` consists of. Empty: it is text, for `rule`.
struct LenientCalls {
  std::vector<ToolCall> calls;  // without ids
  CallForm form = CallForm::kJson;
  CallRule rule = CallRule::kNone;
};
// `cut`: a limit ended the answer, so that nothing is closed.
LenientCalls ParseLenientCalls(std::string_view candidate, const std::vector<Tool>& tools,
                               bool cut);

}  // namespace thermocline::chat
