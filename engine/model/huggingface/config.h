// Interprets Hugging Face's config.json.
#pragma once

#include "engine/base/json.h"
#include "engine/model/model_config.h"

namespace thermocline::model {

// InvalidArgument names a missing or mistyped field; Unimplemented an unsupported family or
// feature.
Result<ModelConfig> ConfigFromHuggingFace(const Json& json);

// Reads the fields of experts into `config`, which is unchanged if there are none (experts.cc).
// Requires: the architecture and the shapes are set. Errors as above.
Status ReadHuggingFaceExperts(const Json& json, ModelConfig& config);

// Reads Gemma 3n's fields (altup.cc). Requires: the shapes are set. Errors as above.
Status ReadHuggingFaceAltUp(const Json& json, ModelConfig& config);

// Reads Gemma 4's fields (gemma4.cc). Requires: the shapes and experts are set. Errors as above.
Status ReadHuggingFaceGemma4(const Json& json, ModelConfig& config);

// Read the windows of attention (windows.cc) and rotary positions (rope.cc). Errors as above.
Status ReadHuggingFaceWindows(const Json& json, ModelConfig& config);
Status ReadHuggingFaceRope(const Json& json, ModelConfig& config);

// Returns `config` with the family's defaults for missing fields (defaults.cc).
Json WithFamilyDefaults(const Json& config, std::string_view model_type);

// Rejects string and flag fields that have another type.
Status CheckTypes(const Json& config);

}  // namespace thermocline::model
