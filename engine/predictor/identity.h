// The identity that side-cars of a model file must have.
#pragma once

#include "engine/model/model_file.h"
#include "engine/predictor/side_car.h"

namespace thermocline::predictor {

// Errors as reading the model.
Result<SideCarIdentity> IdentityOf(const model::ModelFile& file);

}  // namespace thermocline::predictor
