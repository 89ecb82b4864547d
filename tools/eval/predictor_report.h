// The results of auditing every token: the table, JSON and picture of `eval --predictor`.
#pragma once

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/ffn/auditor.h"
#include "engine/load/loaded_model.h"

namespace thermocline::tools {

// Offsets added to the predictor's threshold, in units of ffn::ShiftUnit, at which predictions are
// evaluated. 0 is the threshold as it is, which the plot marks.
inline const std::vector<float> kSweep = {-1.5F, -1.0F, -0.7F, -0.5F, -0.3F, -0.15F,
                                          0.0F,  0.15F, 0.3F,  0.5F,  0.7F,  1.0F};

struct PredictorReport {
  struct Layer {
    FfnMode mode;
    predictor::AuditCounts counts;
    double bytes_saved_share;  // of the dense network's bytes
  };
  struct Point {
    double bytes_share, missed_mass;  // over all predicted layers
  };
  std::vector<Layer> layers;
  std::vector<Point> sweep;

  // The sum over the predicted layers.
  predictor::AuditCounts total() const;
};

PredictorReport MakeReport(const load::LoadedModel& model, const ffn::Auditor& auditor,
                           const ffn::SparseFfn& ffn);

Json::Array LayersJson(const PredictorReport& report);
void PrintReport(const PredictorReport& report);
// An SVG: precision and recall by layer, and bytes against missed mass.
Status WriteReportPlot(const std::string& path, const PredictorReport& report);

}  // namespace thermocline::tools
