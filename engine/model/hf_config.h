// Meaning of Hugging Face's config.json.
#pragma once

#include "engine/base/json.h"
#include "engine/model/model_config.h"

namespace thermocline::model {

// InvalidArgument names a missing or mistyped field; Unimplemented an unsupported family or
// feature.
Result<ModelConfig> ConfigFromHuggingFace(const Json& json);

// What it says of experts, into `config`; nothing where it says nothing (hf_experts.cc). Requires:
// the architecture and the shapes are set. Errors as above.
Status ReadHuggingFaceExperts(const Json& json, ModelConfig& config);

}  // namespace thermocline::model
