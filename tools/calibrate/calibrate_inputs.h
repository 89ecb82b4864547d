// Thresholds of mode inputs: which inputs of which matrices may be left out, for the least
// divergence from the whole model.
#pragma once

#include <string>

#include "engine/load/loaded_model.h"
#include "tools/common/side_car_options.h"
#include "tools/common/text_windows.h"

namespace thermocline::tools {

struct InputOptions {
  double share = 0.5;           // of the layers' bytes, at most
  std::string rule = "best";    // how inputs are chosen: best, size or norm
  std::string budget = "best";  // what shares of matrices come from: best, model or layer
  bool compare = false;         // plain rules, too
  std::string plot;             // SVG
  bool json = false;
};

// Measures, prints the table, and writes the points to the side-car.
Status CalibrateInputs(const InputOptions& options, load::LoadedModel& model, SplitWindows windows,
                       OpenSideCar side_car);

}  // namespace thermocline::tools
