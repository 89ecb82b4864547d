// Opens a LoRA adapter by path, whatever its format.
#pragma once

#include <string>

#include "engine/model/adapter.h"
#include "engine/model/model_config.h"

namespace thermocline::model {

// Reads a GGUF file, or a folder of PEFT, made for a model of `config`. NotFound, DataLoss,
// InvalidArgument (of another architecture) or Unimplemented, naming the file and its fault.
Result<Adapter> OpenAdapter(const std::string& path, const ModelConfig& config);

}  // namespace thermocline::model
