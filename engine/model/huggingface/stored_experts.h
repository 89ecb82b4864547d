// Experts in the folders of gpt-oss (alternating gate and up rows, in MXFP4 or as transposed
// floats) and of Llama 4 (transposed, gate before up).
#pragma once

#include "engine/model/model_file.h"

namespace thermocline::model {

// Replaces the stored "ffn_gate_up_exps" and "ffn_down_exps" (.blocks and .scales, or .weight;
// .bias) by gate, up and down as GGUF has them. InvalidArgument names a tensor of another shape.
// Called once, when all tensors are known.
Status UnpackExperts(ModelFile& model);

}  // namespace thermocline::model
