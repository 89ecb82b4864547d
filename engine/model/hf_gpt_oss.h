// gpt-oss's Hugging Face folders: experts' gate and up row by row, in MXFP4 or, as floats, turned.
#pragma once

#include "engine/model/model_file.h"

namespace thermocline::model {

// In place of "ffn_gate_up_exps" and "ffn_down_exps" (.blocks and .scales, or .weight; .bias), as
// they are stored: gate, up and down as GGUF has them. InvalidArgument names a tensor of another
// shape. Once, when all tensors are there.
Status UnpackGptOss(ModelFile& model);

}  // namespace thermocline::model
