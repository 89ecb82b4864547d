// Parses the calls of a text in lenient forms (call_forms.h), also where the text is only the start
// of an answer.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "server/chat/call_cursor.h"
#include "server/chat/call_forms.h"
#include "server/chat/call_rules.h"
#include "server/chat/message_part.h"
#include "server/chat/tools.h"

namespace thermocline::chat {

struct ReadParams {
  const std::vector<Tool>& tools;
  // Marks of the template's own format, which may be around calls.
  std::span<const std::string_view> marks = {};
  bool begins = true;    // the text begins the answer
  bool further = false;  // calls precede the text
};

// The result. kMore: more text may make it calls; kDone: it holds `calls`, and further ones may
// follow; kNo: it is text, because of `rule` if it looked like a call.
struct ReadCalls {
  // A call whose arguments can be passed on as they arrive: its name is known, and the opening
  // brace of its arguments is at `at`, within `objects` open objects.
  struct Begun {
    const Tool* tool = nullptr;
    std::size_t at = 0;
    int objects = 0;
  };
  Taken taken = Taken::kNo;
  CallRule rule = CallRule::kNone;
  const CallFormRow* row = nullptr;  // the first
  CallForm form = CallForm::kJson;
  std::vector<ToolCall> calls = {};  // without ids
  std::optional<Begun> begun = {};
  std::size_t skipped = 0;  // bytes of separators and closing marks before the first form
};
ReadCalls ReadLenientCalls(std::string_view text, TextEnd end, const ReadParams& params);

// Takes the members of `objects` open objects behind the arguments, and their closing brackets.
Taken TakeObjectTails(CallCursor& cursor, int& objects);

}  // namespace thermocline::chat
