// `thermocline run --batch`: answers a file of requests offline.
#pragma once

#include <string>

#include "engine/api/model_options.h"
#include "engine/base/status.h"

namespace thermocline::tools {

struct BatchFiles {
  std::string input;
  std::string output;  // "" = beside the input, with .answers.jsonl instead of .jsonl
};

// Shows a progress bar on the terminal; Ctrl-C stops, and the same call resumes. Errors as
// batch::Run, and FailedPrecondition if some answers of the complete output are errors.
Status RunBatch(const BatchFiles& files, const ModelOptions& model);

}  // namespace thermocline::tools
