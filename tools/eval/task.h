// Reads files of questions with known answers, and judges answers. Source: EleutherAI's
// lm-evaluation-harness, its task gsm8k and its type multiple_choice.
#pragma once

#include <string>
#include <vector>

#include "engine/base/status.h"

namespace thermocline::tools {

struct TaskItem {
  std::string prompt;
  std::vector<std::string> choices;  // kChoices only
  int gold = 0;                      // index of the right choice
  std::string answer;  // the expected answer to a question; GSM8K's includes the reasoning
  std::vector<std::string> stop;  // texts that end an answer
};

struct Task {
  enum class Kind {
    kChoices,   // the most probable of some continuations
    kGsm8k,     // generated reasoning, then "#### " and a number
    kGenerate,  // generated text that must equal the answer
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
// The first `shots` lines of GSM8K or of questions become examples before the others' prompts.
// InvalidArgument names the line and the error.
Result<Task> ReadTask(const std::string& path, int shots);

// The part of a generated text to judge: strictly the number after "#### ", flexibly its last
// number; "[invalid]" without one.
std::string StrictAnswer(const std::string& text);
std::string FlexibleAnswer(const std::string& text);
// True if two answers are equal, ignoring commas, dollar signs, the last full stop, the reasoning
// before "#### ", and case.
bool SameAnswer(const std::string& answer, const std::string& expected);

}  // namespace thermocline::tools
