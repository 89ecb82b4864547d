// Meaning of Hugging Face's config.json.
#pragma once

#include "engine/base/json.h"
#include "engine/model/model_config.h"

namespace thermocline::model {

// InvalidArgument names a missing or mistyped field; Unimplemented an unsupported family or
// feature.
Result<ModelConfig> ConfigFromHuggingFace(const Json& json);

}  // namespace thermocline::model
