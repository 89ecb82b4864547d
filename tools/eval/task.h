// Files of questions with known answers, and how an answer is judged.
// Source: EleutherAI's lm-evaluation-harness, its task gsm8k and its type multiple_choice.
#pragma once

#include <string>
#include <vector>

#include "engine/base/status.h"

namespace thermocline::tools {

struct TaskItem {
  std::string prompt;
  std::vector<std::string> choices;  // of a choice
  int gold = 0;                      // the right one
  std::string answer;                // of a question: what must come; GSM8K's with its reasoning
  std::vector<std::string> stop;     // where an answer ends
};

struct Task {
  enum class Kind {
    kChoices,   // the most probable of some continuations
    kGsm8k,     // generated reasoning, then "#### " and a number
    kGenerate,  // generated text, to be the answer itself
  };
  Kind kind = Kind::kChoices;
  std::vector<TaskItem> items;
};

// "choices", "gsm8k" or "generate".
const char* TaskKindName(Task::Kind kind);

// JSONL, every line of one kind:
//   {"prompt": text, "choices": [text, text, ...], "gold": index}
//   {"question": text, "answer": "reasoning #### number"}           GSM8K
//   {"prompt": text, "answer": text, "stop": [text, ...]}           stop: "\n" if absent
// The first `shots` lines of GSM8K or of questions become examples in front of the others' prompts.
// InvalidArgument names the line and what is wrong with it.
Result<Task> ReadTask(const std::string& path, int shots);

// What is judged of a generated text: strictly the number behind "#### ", flexibly its last number;
// "[invalid]" without one.
std::string StrictAnswer(const std::string& text);
std::string FlexibleAnswer(const std::string& text);
// Whether two answers are the same: without commas, dollars, the last full stop, the reasoning
// before "#### ", and case.
bool SameAnswer(const std::string& answer, const std::string& expected);

}  // namespace thermocline::tools
