// LoRA adapters as PEFT saves them: adapter_config.json and adapter_model.safetensors.
#pragma once

#include <string>

#include "engine/model/adapter.h"
#include "engine/model/model_config.h"

namespace thermocline::model {

// Errors as OpenAdapter; the hash is missing.
Result<Adapter> OpenPeftAdapter(const std::string& folder, const ModelConfig& config);

}  // namespace thermocline::model
