// BitNet's Hugging Face folders: ternary weights packed four to a byte, or floats to be rounded.
#pragma once

#include "engine/base/json.h"
#include "engine/model/model_file.h"

namespace thermocline::model {

// The form of the layers' ternary matrices, by config.json.
struct BitNetWeights {
  enum class Form { kFloats, kPacked, kRounded };  // kRounded: floats, rounded by their mean
  Form form = Form::kFloats;
  bool divides = false;  // packed: weight_scale divides instead of multiplying
};
// Unimplemented names any other quantisation in the field 'quantization_config'.
Result<BitNetWeights> ReadBitNetWeights(const Json& config);

// Converts the layers' matrices to ternary ones, of TQ2_0 if their columns allow it. `model` must
// outlive its tensors. InvalidArgument names a missing scale; rounding reads every matrix once.
// Called once, when all tensors are known. Source: transformers' bitnet integration.
Status UnpackBitNet(const BitNetWeights& weights, ModelFile& model);

}  // namespace thermocline::model
