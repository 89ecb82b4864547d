// Reads Hugging Face folders: config.json, safetensors, the tokenizer.
#pragma once

#include <memory>
#include <string>

#include "engine/base/status.h"
#include "engine/model/model_file.h"

namespace thermocline::model {

// Errors as OpenModelFile, except that the folder may hold only a vocabulary.
Result<std::unique_ptr<ModelFile>> OpenHuggingFace(const std::string& folder);

}  // namespace thermocline::model
