// Predictors for some of a model's neurons.
#pragma once

#include <memory>
#include <vector>

#include "engine/predictor/predictors.h"

namespace thermocline::predictor {

// Returns predictors of `members`, [L] ascending neurons, in their order: row i predicts
// members[l][i]. They own copies of their data; data by neuron id (down_norms) is left out.
// ResourceExhausted: no memory.
Result<std::unique_ptr<Predictors>> SubsetOf(const Predictors& all,
                                             const std::vector<std::vector<int>>& members);

}  // namespace thermocline::predictor
