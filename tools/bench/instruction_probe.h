// How many multiply-adds a second the processors can make: the dot product of the op table alone,
// on all threads of a pool.
#pragma once

#include "engine/base/worker_pool.h"
#include "kernels/op_table.h"

namespace thermocline::tools {

// Billions of multiply-adds a second. Takes some milliseconds.
double MeasureGopPerS(const kernels::OpTable& ops, base::WorkerPool& pool);

}  // namespace thermocline::tools
