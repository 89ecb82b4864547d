// The rules by which a text is a call of a tool in a lenient form, or is not.
//
// Calls that a model writes as text are accepted; an example in a code block is not a call. The
// rules:
//   R2  the name is one of the request's tools, byte for byte; a prefix "functions." or
//       "default_api." and a suffix ":N" may be around it
//   R3  an object has a name, and "arguments" or "parameters" with an object or its JSON in a
//       string; a tool without required parameters needs none; {"NAME": {...}} alone counts, too
//   R4  no other members but "id" and "type"
//   R5  calls stand at the answer's begin, or at the begin of a line behind at most kProseBytesMax
//       of text; only further calls and stray closing tags follow them
//   R6  a fence begins a line, is the last thing of the answer, and holds only calls
//   R8  arguments in Python's form are literals
//   R10 all calls of an answer are accepted or none, and at most kLenientCallsMax
//   R11 tools that are strict are called only under their grammar
//   R12 a tagged value is text if the schema says string, otherwise JSON first
//   R13 brackets that are open where the model ends are closed, a string never is
#pragma once

#include "engine/base/index.h"

namespace thermocline::chat {

// The rule that turned a text into no call.
enum class CallRule {
  kNone,
  kName,
  kMembers,
  kOtherMembers,
  kPlace,
  kFence,
  kLiterals,
  kSeveral,
  kStrict
};

// The rule's number for metrics; "" for kNone.
inline const char* CallRuleName(CallRule rule) {
  constexpr const char* kNames[] = {"", "R2", "R3", "R4", "R5", "R6", "R8", "R10", "R11"};
  return kNames[base::Index(rule)];
}

inline constexpr int kLenientCallsMax = 16;

}  // namespace thermocline::chat
