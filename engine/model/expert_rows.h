// Down projections of experts as rows: a neuron's weights are contiguous, so those of neurons that
// are zero for a token need not be read.
#pragma once

#include "engine/model/model_file.h"

namespace thermocline::model {

// [f, D] for each expert, where "ffn_down_exps" has [D, f].
inline constexpr std::string_view kExpertDownRows = "ffn_down_t_exps.weight";

bool HasExpertRows(const ModelFile& model);
// Replaces the experts' down projections along columns by computed ones along rows (or the
// reverse); a file without them stays as it is. Quantised weights, whose blocks then contain other
// weights, become q8_0 and are rounded again, which a warning reports. InvalidArgument: another
// shape.
Status TurnExpertsDown(ModelFile& model, bool to_rows);

}  // namespace thermocline::model
