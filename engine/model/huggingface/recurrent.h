// Recurrent layers in Hugging Face's folders.
#pragma once

#include "engine/base/json.h"
#include "engine/model/model_file.h"

namespace thermocline::model {

// Reads the kinds of layers and the sizes of their state into `config`, which is unchanged if all
// layers have attention. Requires: the architecture and the shapes are set. InvalidArgument or
// Unimplemented name the field.
Status ReadHuggingFaceRecurrent(const Json& json, ModelConfig& config);

// Arranges the tensors of recurrent layers as in GGUF: packed projections split, value heads
// ordered as `tiled` says, decays as -exp(A_log). Requires: tensors have GGUF's names.
Status ArrangeRecurrent(ModelFile& model);

}  // namespace thermocline::model
