// The option --side-car of the subcommands that write a model's side-car.
#pragma once

#include <span>
#include <string>

#include "engine/load/loaded_model.h"
#include "engine/predictor/side_car.h"
#include "tools/common/command_line.h"

namespace thermocline::tools {

void AddSideCarOption(const OptionSet& set, std::string& path);

// What a subcommand learns: the members of a layer that it writes.
enum class SideCarPart {
  kProfile,    // activations, down_norms, and how many tokens were profiled
  kSign,       // sign or alpha, down_norms
  kThreshold,  // of mode threshold
  kLowRank,
  kInputs  // of mode inputs: of all layers at once
};

// A side-car that is being filled.
struct OpenSideCar {
  std::string path;
  SideCarPart part;
  predictor::SideCarIdentity identity;
  predictor::SideCar content;

  // Puts the part of these layers into the file as it is now: what other processes have written
  // meanwhile stays. `content` becomes what was written.
  Status Write(std::span<const int> layers);
  Status WriteAll();
};

// What `path` (the model's default, if empty) holds; an empty one if there is none. Fails, before
// anything is computed, as ReadSideCar does and if the folder cannot be written.
Result<OpenSideCar> OpenSideCarOf(const load::LoadedModel& model, const std::string& path,
                                  SideCarPart part);

// InvalidArgument unless `path` is empty, or ends in ".svg" and names no file but a picture:
// another file is not replaced.
Status CheckPlotPath(const std::string& path);

}  // namespace thermocline::tools
