// BitNet's Hugging Face folders: ternary weights in four to a byte, or floats that become ternary.
#pragma once

#include "engine/base/json.h"
#include "engine/model/model_file.h"

namespace thermocline::model {

// The form of the layers' ternary matrices, by config.json.
struct BitNetWeights {
  enum class Form { kFloats, kPacked, kRounded };  // kRounded: floats, rounded by their mean
  Form form = Form::kFloats;
  bool divides = false;  // packed: by weight_scale instead of times it
};
// Unimplemented names another quantisation in the field 'quantization_config' of this family.
Result<BitNetWeights> ReadBitNetWeights(const Json& config);

// Makes the layers' matrices ternary ones, of TQ2_0 where their columns allow it. `model` must
// outlive its tensors. InvalidArgument names a scale that is missing; rounding reads every matrix
// once. Once, when all tensors are there. Source: transformers' bitnet integration.
Status UnpackBitNet(const BitNetWeights& weights, ModelFile& model);

}  // namespace thermocline::model
