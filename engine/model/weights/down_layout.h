// Transposes the down projection of a loaded layer in place, from columns to rows, so that neurons
// of a file's column-major projection can be skipped.
// Source: SparseInfer, section 4.4, keeps W_down transposed.
#pragma once

#include "engine/base/worker_pool.h"
#include "engine/model/weights/weights.h"

namespace thermocline::model {

// Checks that TurnDown may be called: FailedPrecondition gives the reason (a type without a sum
// over rows, weights that are not in memory, or rows already).
Status CanTurnDown(const LayerWeights& layer);
// True if every weight keeps its value: not in quantised types, whose blocks then contain other
// weights and are rounded again.
bool TurnsDownExactly(const LayerWeights& layer);

// down [D, F] -> down_rows [F, D], in the same bytes; its bias stays. Needs TurnDownBytes of
// temporary memory. Requires: CanTurnDown.
void TurnDown(LayerWeights& layer, base::WorkerPool& pool);

std::size_t TurnDownBytes(const LayerWeights& layer);

}  // namespace thermocline::model
