// The down projection of a loaded layer, turned from columns to rows where it lies: so a file's
// column-major projection can be skipped by neuron.
// Source: SparseInfer, section 4.4, keeps W_down transposed.
#pragma once

#include "engine/base/worker_pool.h"
#include "engine/model/weights.h"

namespace thermocline::model {

// Checks that TurnDown may be called: FailedPrecondition says why not (a type without a sum over
// rows, weights that are not in memory, or rows already).
Status CanTurnDown(const LayerWeights& layer);
// True if every weight keeps its value: not in quantised types, whose blocks then lie along other
// weights and are rounded once more.
bool TurnsDownExactly(const LayerWeights& layer);

// down [D, F] -> down_rows [F, D], in the bytes that it had; its bias stays. Takes
// TurnDownBytes of memory while it works. Requires: CanTurnDown.
void TurnDown(LayerWeights& layer, base::WorkerPool& pool);

std::size_t TurnDownBytes(const LayerWeights& layer);

}  // namespace thermocline::model
