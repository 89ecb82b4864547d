// Packed weights of Hugging Face folders: FP8, NVFP4, MX types, integers of 4 and 8 bits, GPTQ and
// AWQ, as transformers, compressed-tensors, ModelOpt, AutoGPTQ and AutoAWQ write them.
#pragma once

#include <vector>

#include "engine/base/json.h"
#include "engine/model/huggingface/safetensors.h"
#include "engine/model/model_file.h"

namespace thermocline::model {

// Unimplemented, with what to do: a method of 'quantization_config' that is not read.
Status CheckQuantization(const Json& config);

// Replaces packed weights among `tensors` by floats of 16 bits in a DecodedFile, which is appended
// to the model's files, and drops their scales. Does nothing for folders without
// 'quantization_config'. Called once, when all tensors are known. Errors, which name the tensor, as
// FindPackedRows and FindPackedColumns.
Status DecodeWeights(const Json& config, std::vector<StoredTensor>& tensors, ModelFile& model);

}  // namespace thermocline::model
