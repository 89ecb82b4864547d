// Types that are read but not computed with: their rows become another type's while they are read.
#pragma once

#include "engine/model/model_file.h"

namespace thermocline::model {

// Gives tensors of such types the type that they are held as, and says in the log what that costs.
// Once, when all tensors are there. Borrows `model`, which must outlive its tensors.
void HoldInNativeTypes(ModelFile& model);

}  // namespace thermocline::model
