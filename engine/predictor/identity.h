// Which side-cars belong to a model file.
#pragma once

#include "engine/model/model_file.h"
#include "engine/predictor/side_car.h"

namespace thermocline::predictor {

// Fails as reading the model does.
Result<SideCarIdentity> IdentityOf(const model::ModelFile& file);

}  // namespace thermocline::predictor
