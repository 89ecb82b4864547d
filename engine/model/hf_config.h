// Meaning of Hugging Face's config.json.
#pragma once

#include "engine/base/json.h"
#include "engine/model/model_config.h"

namespace thermocline::model {

// InvalidArgument names a missing or mistyped field; Unimplemented an unsupported family or
// feature.
Result<ModelConfig> ConfigFromHuggingFace(const Json& json);

// Reads its fields of experts into `config`, which stays as it is where there are none
// (hf_experts.cc). Requires: the architecture and the shapes are set. Errors as above.
Status ReadHuggingFaceExperts(const Json& json, ModelConfig& config);

// Gemma 3n's (altup.cc). Requires: the shapes are set. Errors as above.
Status ReadHuggingFaceAltUp(const Json& json, ModelConfig& config);

// The windows of attention (hf_windows.cc) and rotary positions (hf_rope.cc). Errors as above.
Status ReadHuggingFaceWindows(const Json& json, ModelConfig& config);
Status ReadHuggingFaceRope(const Json& json, ModelConfig& config);

// `config` with the family's defaults for fields that it lacks (hf_defaults.cc).
Json WithFamilyDefaults(const Json& config, std::string_view model_type);

// Refuses fields that are strings, or flags, of another type.
Status CheckTypes(const Json& config);

}  // namespace thermocline::model
