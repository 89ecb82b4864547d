// PowerInfer's flavour of GGUF: the magic PWRI, neurons along the rows, a predictor in every layer.
//
//   blk.N.ffn_down_t.weight [F, D]  the transpose of ffn_down: a neuron is one row
//   blk.N.fc1.weight        [R, D]  predictor: neuron j is active if
//   blk.N.fc2.weight        [F, R]    (fc2 relu(fc1 x))_j >= sparse_threshold
// The rest is GGUF v3. We read these tensors in files of either magic, and write them in files with
// GGUF's. Source: Song et al. 2023, PowerInfer.
#pragma once

#include "engine/model/model_file.h"

namespace thermocline::model {

// Moves a neuron-major down projection's bias to the name it has elsewhere, and checks what the
// rest of the engine takes for granted: one layout of a layer's down projection, and predictors in
// all layers or none (in all, under the magic PWRI), whose shapes fit. Fills
// `sparse_threshold` where there are predictors.
// InvalidArgument names the tensor.
Status ReadPowerInfer(ModelFile& model);

// The activation that PowerInfer's graph of an architecture has, whatever the family's dense models
// use. Unimplemented for an architecture without such a graph.
Result<Activation> PowerInferActivation(const Architecture& architecture);

}  // namespace thermocline::model
