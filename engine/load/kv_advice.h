// Advice on the type of the KV cache: with q8_0 long prompts may be read faster.
#pragma once

#include <string>

#include "engine/model/model_config.h"
#include "kernels/op_table.h"

namespace thermocline::load {

// A sentence for a person who runs a model with a long context; "" if another type gains little, or
// the context is short. `ops`: the kernels in use; their gain is known for AVX-512 alone.
std::string KvAdvice(const model::ModelConfig& config, kernels::KvType type, int context,
                     const kernels::OpTable& ops);

}  // namespace thermocline::load
