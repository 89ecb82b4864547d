// A matrix transposed: from panels of its rows to rows of what each input multiplies.
#pragma once

#include <vector>

#include "engine/base/worker_pool.h"
#include "kernels/rows.h"
#include "kernels/types.h"

namespace thermocline::model {

// Columns [first, first + matrix.rows) of values [inputs, outputs]: `matrix` turned. Panels are
// turned together: a cache line of every input.
void TurnMatrix(const kernels::PackedMatrix& matrix, int first, int outputs, base::WorkerPool& pool,
                std::vector<float>& values);
// values [to.rows, to.cols] to where `to` lies, which is written.
void PackTurned(const kernels::RowMatrix& to, const std::vector<float>& values,
                base::WorkerPool& pool);

}  // namespace thermocline::model
