// How far ahead weights are asked for while a token is decoded: what helps one processor's memory
// (1.3 to 2.2 times the speed on one that reads 67 GB/s) slows another's, so it is measured.
#pragma once

#include "engine/base/worker_pool.h"
#include "engine/model/weights.h"
#include "kernels/op_table.h"

namespace thermocline::load {

// Bytes ahead, 0 = the processor's own prefetching alone is faster (GemmParams::prefetch_bytes).
// Times products of the attention's matrices, some hundred MB, in turns: some tens of ms. Models
// whose attention lies in cache are not measured and get kernels::kPrefetchBytes.
int FastestPrefetch(const model::Weights& weights, const kernels::OpTable& ops,
                    base::WorkerPool& pool);

}  // namespace thermocline::load
