// Parses tool calls that a model writes in another form than its chat template's: JSON objects,
// bare or in a code fence, and Qwen's tags without the opening one. Small models do so often.
//
// Calls that a model writes as text are accepted; an example in a code block is not a call. Rules
// R2 to R6 and R13 decide:
//   R2  the name is one of the request's tools, byte for byte; a prefix "functions." or
//       "default_api." and a suffix ":N" may be around it
//   R3  an object has a name, and "arguments" or "parameters" with an object or its JSON in a
//       string; a tool without required parameters needs none; {"NAME": {...}} alone counts, too
//   R4  no other members but "id" and "type"
//   R5  bare objects stand at the answer's begin, or at the begin of a line behind at most
//       kProseBytesMax of text; only further calls and stray closing tags follow them
//   R6  a fence begins a line, is the last thing of the answer, and holds only calls
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

// The form of a call: the template's own, or one of the lenient ones.
enum class CallForm { kNative, kJson, kFence, kXml };
const char* CallFormName(CallForm form);
// The rule that turned a candidate into text.
enum class CallRule { kNone, kName, kMembers, kOtherMembers, kPlace, kFence };
const char* CallRuleName(CallRule rule);

inline constexpr std::size_t kProseBytesMax = 200;
inline constexpr std::size_t kCandidateBytesMax = 64 << 10;  // longer candidates are text

// The first position in `text` at which a lenient form may begin, or npos. `begin`: `text` is the
// answer's start; otherwise it may start within a line. `prose`: bytes of the answer's text before
// it.
struct CandidateSearch {
  bool begin = false;
  std::size_t prose = 0;
};
std::size_t FindCandidate(std::string_view text, const CandidateSearch& search);

// True if more text may turn `candidate` into calls; it begins at a position from FindCandidate.
bool MayBecomeCalls(std::string_view candidate, const std::vector<Tool>& tools);

// The calls of a complete answer's `candidate`. Empty: it is text, because of `rule`.
struct LenientCalls {
  std::vector<ToolCall> calls;  // without ids
  CallForm form = CallForm::kJson;
  CallRule rule = CallRule::kNone;
};
// `cut`: a limit ended the answer, so open brackets are not closed.
LenientCalls ParseLenientCalls(std::string_view candidate, const std::vector<Tool>& tools,
                               bool cut);

}  // namespace thermocline::chat
