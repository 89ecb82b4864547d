// Reads GGUF files, in one part or several, and PowerInfer's.
#pragma once

#include <memory>
#include <string>

#include "engine/base/status.h"
#include "engine/model/model_file.h"

namespace thermocline::model {

// Errors as OpenModelFile, except that the file may hold only a vocabulary.
Result<std::unique_ptr<ModelFile>> OpenGguf(const std::string& path);

}  // namespace thermocline::model
