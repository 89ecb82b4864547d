// `thermocline eval --task`: the share of questions that a model answers rightly.
#pragma once

#include <string>

#include "engine/api/model_options.h"
#include "engine/base/status.h"

namespace thermocline::tools {

class OptionSet;

struct TaskOptions {
  std::string path;
  int shots = 0, limit = 0, max_new_tokens = 256;
};

// --task and what goes with it.
void AddTaskOptions(const OptionSet& set, TaskOptions& options);

// Choices: the log-likelihood of each behind its prompt, both in the mode of decoding; acc takes
// the most probable one, acc_norm the most probable one for a character. Questions: the prompt is
// read without loss, the answer decoded greedily. A prompt that does not fit the context loses its
// beginning, and is counted.
// Source: EleutherAI's lm-evaluation-harness.
Status EvalTask(const ModelOptions& model, const TaskOptions& options, bool json);

}  // namespace thermocline::tools
