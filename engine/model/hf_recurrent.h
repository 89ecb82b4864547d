// Recurrent layers in Hugging Face's folders.
#pragma once

#include "engine/base/json.h"
#include "engine/model/model_file.h"

namespace thermocline::model {

// Reads the kinds of layers and the sizes of their state into `config`, which stays as it is where
// all layers have attention. Requires: the architecture and the shapes are set. InvalidArgument or
// Unimplemented name the field.
Status ReadHuggingFaceRecurrent(const Json& json, ModelConfig& config);

// Puts the tensors of recurrent layers in the order that GGUF has: packed projections apart, heads
// of values as `tiled` says, decays as -exp(A_log). Requires: tensors have GGUF's names.
Status ArrangeRecurrent(ModelFile& model);

}  // namespace thermocline::model
