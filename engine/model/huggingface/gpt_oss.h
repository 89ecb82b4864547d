// gpt-oss's Hugging Face folders: experts with alternating gate and up rows, in MXFP4 or as
// transposed floats.
#pragma once

#include "engine/model/model_file.h"

namespace thermocline::model {

// Replaces the stored "ffn_gate_up_exps" and "ffn_down_exps" (.blocks and .scales, or .weight;
// .bias) by gate, up and down as GGUF has them. InvalidArgument names a tensor of another shape.
// Called once, when all tensors are known.
Status UnpackGptOss(ModelFile& model);

}  // namespace thermocline::model
