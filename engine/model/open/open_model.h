// Opens a model of any format.
#pragma once

#include <memory>
#include <string>

#include "engine/base/status.h"
#include "engine/model/model_file.h"

namespace thermocline::model {

// Opens a GGUF file, a llama2.c checkpoint or a Hugging Face folder, depending on `path`. NotFound,
// InvalidArgument, DataLoss (damaged: names the key or tensor) or Unimplemented (names the
// feature). InvalidArgument also for a file with a vocabulary but no weights.
Result<std::unique_ptr<ModelFile>> OpenModelFile(const std::string& path);
// The same for callers that read no weights: the file may hold only a vocabulary. Its configuration
// is then empty.
Result<std::unique_ptr<ModelFile>> OpenModelOrVocabulary(const std::string& path);

}  // namespace thermocline::model
