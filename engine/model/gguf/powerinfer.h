// PowerInfer's variant of GGUF: the magic PWRI, neurons along the rows, a predictor in every layer.
//
//   blk.N.ffn_down_t.weight [F, D]  the transpose of ffn_down: a neuron is one row
//   blk.N.fc1.weight        [R, D]  predictor: neuron j is active if
//   blk.N.fc2.weight        [F, R]    (fc2 relu(fc1 x))_j >= sparse_threshold
// The rest is GGUF v3. We read these tensors in files with either magic, and write them in files
// with GGUF's. Source: Song et al. 2023, PowerInfer.
#pragma once

#include "engine/model/model_file.h"

namespace thermocline::model {

// Renames a neuron-major down projection's bias to its usual name, and checks the assumptions of
// the rest of the engine: one layout of a layer's down projection, and predictors of the right
// shape in all layers or none (in all, under the magic PWRI). Sets `sparse_threshold` if there are
// predictors. InvalidArgument names the tensor.
Status ReadPowerInfer(ModelFile& model);

// Returns the activation that PowerInfer uses for an architecture, which may differ from the
// family's dense models. Unimplemented for an architecture that PowerInfer does not support.
Result<Activation> PowerInferActivation(const Architecture& architecture);

}  // namespace thermocline::model
