// Predictors of some of a model's neurons.
#pragma once

#include <memory>
#include <vector>

#include "engine/predictor/predictors.h"

namespace thermocline::predictor {

// Those of `members`, [L] ascending neurons, in their order: row i predicts members[l][i]. Owns
// copies of all it needs; what is kept by neuron id (down_norms) is left out. ResourceExhausted
// without memory.
Result<std::unique_ptr<Predictors>> SubsetOf(const Predictors& all,
                                             const std::vector<std::vector<int>>& members);

// One neuron's part of a layer's predictors.
struct PredictorRow {
  std::vector<std::uint64_t> sign, magnitude;  // [SignWords]
  std::int32_t threshold = 0;
  std::vector<std::uint8_t> fc2;  // as a row of a RowMatrix
};
void CopyRow(const LayerPredictors& layer, int row, PredictorRow& out);
// Takes row `from` out and puts `row` in, so that it is row `to` of the result; the others keep
// their order. Requires: predictors of SubsetOf.
void ReplaceRow(LayerPredictors& layer, int from, int to, const PredictorRow& row);

}  // namespace thermocline::predictor
