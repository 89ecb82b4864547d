// The attention parts of config.cc. Errors name the key.
#pragma once

#include "engine/model/gguf/keys.h"
#include "engine/model/model_file.h"

namespace thermocline::model {

// Reads scales and caps of embedding, residual, scores and logits. `prefix`: "<architecture>.".
Status ReadGgufScales(const Keys& keys, const std::string& prefix, ModelConfig& config);
// Reads Gemma 3n's fields (altup.cc). Requires: the shapes are set.
Status ReadGgufAltUp(const ModelFile& model, const Keys& keys, const std::string& prefix,
                     ModelConfig& config);
// Reads Gemma 4's fields (gemma4.cc). Requires: the shapes and windows are set.
Status ReadGgufGemma4(const ModelFile& model, const Keys& keys, const std::string& prefix,
                      ModelConfig& config);
// Reads query heads that differ between layers with and without a window. Requires: the shapes and
// windows are set.
Status ReadGgufQueryHeads(const Keys& keys, const std::string& prefix, ModelConfig& config);
// Reads the layers with a window. Requires: sliding_window is set.
Status ReadGgufWindows(const Json& metadata, const std::string& prefix, ModelConfig& config);
// Reads the recurrent layers (recurrent.cc). Requires: the number of layers is set.
Status ReadGgufRecurrent(const Keys& keys, const Json& metadata, const std::string& prefix,
                         ModelConfig& config);
// Requires: windows and latent attention are set.
Status ReadGgufRope(const Keys& keys, const std::string& prefix, ModelConfig& config);

}  // namespace thermocline::model
