// Measures the processors' maximum of multiply-adds per second: the op table's dot product alone,
// on all threads of a pool.
#pragma once

#include "engine/base/worker_pool.h"
#include "kernels/op_table.h"

namespace thermocline::tools {

// Billions of multiply-adds per second. Takes some milliseconds.
double MeasureGopPerS(const kernels::OpTable& ops, base::WorkerPool& pool);

// The clock of the core that calls, by a chain of additions, each of which takes a cycle.
double ClockGhz();

}  // namespace thermocline::tools
