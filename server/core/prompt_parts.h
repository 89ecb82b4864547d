// The parts of a conversation's prompt, which tell in what part it differs from an earlier one.
#pragma once

#include <string_view>
#include <vector>

#include "engine/text/tokenizer.h"
#include "server/chat/conversation.h"
#include "server/chat/output_format.h"

namespace thermocline::server {

// kReasoning: the begin of an earlier answer, where its reasoning is or was. kHistory: the other
// messages but the last. kTail: the last message and what follows it.
enum class PromptPart { kSystem, kTools, kHistory, kReasoning, kTail };
// "system", "tools", "history", "reasoning" or "tail".
const char* PromptPartName(PromptPart part);

// Positions are token indexes. Copyable.
class PromptParts {
 public:
  PromptParts() = default;
  // Finds the parts of `tokens`, the prompt of `conversation`, by the texts of its messages and the
  // names of its tools.
  PromptParts(const chat::Conversation& conversation, const std::vector<int>& tokens,
              const chat::OutputFormat& format, const text::Tokenizer& tokenizer);

  PromptPart At(int token) const;

 private:
  int tools_begin_ = 0, tools_end_ = 0, system_end_ = 0, last_begin_ = 0;
  std::vector<int> answers_ = {};  // where earlier answers begin, if the model reasons
};

}  // namespace thermocline::server
