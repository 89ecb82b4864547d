// A measure of a neuron's possible contribution to the residual: the length of its column of the
// down matrix (its row, if down is neuron-major).
#pragma once

#include <vector>

#include "engine/base/worker_pool.h"
#include "engine/model/weights/weights.h"

namespace thermocline::predictor {

// ||d_i|| for every neuron of a layer, [F]. The same bits at any number of threads.
std::vector<float> DownNorms(const model::LayerWeights& layer, base::WorkerPool& pool);

}  // namespace thermocline::predictor
