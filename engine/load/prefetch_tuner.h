// Tunes the prefetch distance of weights during decoding: the distance that helps one processor's
// memory (1.2 to 2.3 times the speed on one that reads 67 GB/s) slows another's, so it is measured.
#pragma once

#include "engine/base/worker_pool.h"
#include "engine/model/weights/weights.h"
#include "kernels/op_table.h"

namespace thermocline::load {

// Bytes of matrices to measure with: fewer than `least` might fit into a cache.
struct PrefetchLimits {
  std::size_t least = std::size_t{96} << 20, enough = std::size_t{256} << 20;
};

// Bytes ahead, 0 = the processor's own prefetching alone is faster (GemmParams::prefetch_bytes).
// Times products of the attention's matrices, some hundred MB, alternating between distances: some
// tens of ms. Models whose attention may fit into a cache, and float models, are not measured and
// get kernels::kPrefetchBytes.
int FastestPrefetch(const model::Weights& weights, const kernels::OpTable& ops,
                    base::WorkerPool& pool, const PrefetchLimits& limits = {});

}  // namespace thermocline::load
