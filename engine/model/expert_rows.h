// Down projections of experts as rows: a neuron's weights lie together, so those of neurons that
// are zero for a token need not be read.
#pragma once

#include "engine/model/model_file.h"

namespace thermocline::model {

// [f, D] for each expert, where "ffn_down_exps" has [D, f].
inline constexpr std::string_view kExpertDownRows = "ffn_down_t_exps.weight";

bool HasExpertRows(const ModelFile& model);
// In place of the experts' down projections along columns, computed ones along rows (or the other
// way); a file without such stays as it is. Quantised weights, whose blocks then lie along others,
// become q8_0 and are rounded once more; a warning says so. InvalidArgument: another shape.
Status TurnExpertsDown(ModelFile& model, bool to_rows);

}  // namespace thermocline::model
