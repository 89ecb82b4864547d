// LoRA adapters as llama.cpp's convert_lora_to_gguf.py writes them.
#pragma once

#include <string>

#include "engine/model/adapter.h"
#include "engine/model/model_config.h"

namespace thermocline::model {

// Errors as OpenAdapter; the hash is missing.
Result<Adapter> OpenGgufAdapter(const std::string& path, const ModelConfig& config);

}  // namespace thermocline::model
