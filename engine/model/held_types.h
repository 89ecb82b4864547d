// Types that can be read but not computed with: their rows are converted to another type on
// reading.
#pragma once

#include "engine/model/model_file.h"

namespace thermocline::model {

// Replaces such types by the types used in memory, and logs the cost. Called once, when all tensors
// are known. Borrows `model`, which must outlive its tensors.
void HoldInNativeTypes(ModelFile& model);

}  // namespace thermocline::model
