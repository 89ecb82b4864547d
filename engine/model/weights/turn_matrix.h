// Transposes a matrix: from panels of its rows to one row of weights per input.
#pragma once

#include <vector>

#include "engine/base/worker_pool.h"
#include "kernels/rows.h"
#include "kernels/types.h"

namespace thermocline::model {

// Writes `matrix`, transposed, to columns [first, first + matrix.rows) of values [inputs, outputs].
// Panels are transposed together, a cache line of every input at a time.
void TurnMatrix(const kernels::PackedMatrix& matrix, int first, int outputs, base::WorkerPool& pool,
                std::vector<float>& values);
// Packs values [to.rows, to.cols] into the memory of `to`.
void PackTurned(const kernels::RowMatrix& to, const std::vector<float>& values,
                base::WorkerPool& pool);

}  // namespace thermocline::model
