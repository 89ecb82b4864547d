// NVFP4 of GGUF files, which has no kernels: its rows are converted to bf16 as they are read.
#pragma once

#include "engine/model/model_file.h"

namespace thermocline::model {

// Replaces such tensors, with the number that multiplies each matrix ("blk.0.attn_q.scale", which
// then leaves the list) folded in, rounds the products once and logs the cost. Called once, when
// all tensors are known. Borrows `model`, which must outlive its tensors. InvalidArgument: a factor
// of another shape.
Status HoldNvfp4(ModelFile& model);

}  // namespace thermocline::model
