// Maps the names of Hugging Face's tensors to GGUF's.
#pragma once

#include <string>

#include "engine/base/status.h"
#include "engine/model/architecture.h"

namespace thermocline::model {

struct GgufName {
  std::string name;  // "blk.0.ffn_up_exps.weight"; "": not used
  int expert = -1;   // the expert whose part of the tensor it is; -1: the whole tensor
};

// Unimplemented names a tensor that no supported family has. `ranks`: of an encoder whose head
// scores pairs of texts.
Result<GgufName> GgufNameOf(std::string name, const Architecture& architecture, bool ranks = false);

// True if a tensor belongs to the vision or audio part of a model.
bool IsOfAnotherSense(std::string_view name);

}  // namespace thermocline::model
