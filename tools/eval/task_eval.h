// `thermocline eval --task`: the share of questions that a model answers correctly.
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

// Adds --task and its options.
void AddTaskOptions(const OptionSet& set, TaskOptions& options);

// Choices: computes the log-likelihood of each after its prompt, both in the decoding mode; acc
// selects the most probable one, acc_norm the most probable one per character. Questions: the
// prompt is computed losslessly, the answer decoded greedily. A prompt that exceeds the context
// loses its start, and is counted. Source: EleutherAI's lm-evaluation-harness.
Status EvalTask(const ModelOptions& model, const TaskOptions& options, bool json);

}  // namespace thermocline::tools
