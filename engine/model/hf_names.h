// The names of Hugging Face's tensors in GGUF.
#pragma once

#include <string>

#include "engine/base/status.h"
#include "engine/model/architecture.h"

namespace thermocline::model {

struct GgufName {
  std::string name;  // "blk.0.ffn_up_exps.weight"; "": no part of the computation
  int expert = -1;   // whose part of that tensor it is; -1: it is all of it
};

// Unimplemented names a tensor that no supported family has.
Result<GgufName> GgufNameOf(std::string name, const Architecture& architecture);

// True if a tensor belongs to the part of a model that sees or hears.
bool IsOfAnotherSense(std::string_view name);

}  // namespace thermocline::model
