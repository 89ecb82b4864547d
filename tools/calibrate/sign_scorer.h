// Sign scores of recorded inputs, to which row thresholds and alpha are fitted.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/load/loaded_model.h"
#include "tools/common/ffn_recorder.h"

namespace thermocline::tools {

// The columns whose products with the inputs are largest on average, in whole cache lines of
// planes; an empty list, for all, if fewer would not save a line.
std::vector<std::int32_t> ChooseColumns(const load::LoadedModel& model, int layer,
                                        const LayerRecording& r, double share);

// Scores [N, F] of one layer's recorded inputs.
class SignScorer {
 public:
  SignScorer(const load::LoadedModel& model, int layer, std::vector<std::int32_t> columns);

  std::vector<std::int32_t> Scores(const LayerRecording& r, int slices, int planes) const;
  int cols() const { return cols_; }
  const std::vector<std::int32_t>& columns() const { return columns_; }

 private:
  const load::LoadedModel& model_;
  const std::vector<std::int32_t> columns_;
  int rows_ = 0, all_ = 0, cols_ = 0;
  std::vector<std::uint64_t> sign_, magnitude_;
};

}  // namespace thermocline::tools
