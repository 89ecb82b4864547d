// Calibrates mode inputs: chooses inputs of matrices to skip, with the least divergence from the
// full model.
#pragma once

#include <string>

#include "engine/load/loaded_model.h"
#include "tools/common/side_car_options.h"
#include "tools/common/text_windows.h"

namespace thermocline::tools {

struct InputOptions {
  double share = 0.5;           // of the layers' bytes that may be skipped
  std::string rule = "best";    // criterion for skipping inputs: best, size or norm
  std::string budget = "best";  // source of the matrices' shares: best, model or layer
  bool compare = false;         // also measure plain rules
  std::string plot;             // SVG
  bool json = false;
};

// Measures, prints the table, and writes the points to the side-car.
Status CalibrateInputs(const InputOptions& options, load::LoadedModel& model, SplitWindows windows,
                       OpenSideCar side_car);

}  // namespace thermocline::tools
