// `thermocline run --batch`: a file of requests, answered offline.
#pragma once

#include <string>

#include "engine/api/model_options.h"
#include "engine/base/status.h"

namespace thermocline::tools {

struct BatchFiles {
  std::string input;
  std::string output;  // "" = beside the input, .answers.jsonl in place of .jsonl
};

// Shows a bar on the terminal; Ctrl-C stops, and the same call goes on. Errors as batch::Run, and
// FailedPrecondition once all is written if some answer is an error.
Status RunBatch(const BatchFiles& files, const ModelOptions& model);

}  // namespace thermocline::tools
