// The parameters of the activation xielu, which folders store as tensors of one number.
#pragma once

#include <string>
#include <vector>

#include "engine/model/huggingface/safetensors.h"
#include "engine/model/model_file.h"

namespace thermocline::model {

// Moves the tensors `model.layers.N.mlp.act_fn.*` of a model with xielu from `tensors` to its
// config. InvalidArgument: a layer lacks a parameter, or it is not one number.
Status TakeXielu(std::vector<StoredTensor>& tensors, ModelFile& model);

}  // namespace thermocline::model
