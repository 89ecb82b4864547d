// The option --side-car of the subcommands that write a model's side-car.
#pragma once

#include <span>
#include <string>

#include "engine/load/loaded_model.h"
#include "engine/predictor/side_car.h"
#include "tools/common/command_line.h"

namespace thermocline::tools {

void AddSideCarOption(const OptionSet& set, std::string& path);

// The members of a layer's side-car that a subcommand writes.
enum class SideCarPart {
  kProfile,    // activations, down_norms, and the number of profiled tokens
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

  // Writes the part of these layers into the current file, keeping the parts that other processes
  // wrote meanwhile. `content` becomes the written file.
  Status Write(std::span<const int> layers);
  Status WriteAll();
};

// The side-car at `path` (the model's default, if empty); empty if there is no file. Fails, before
// any work, as ReadSideCar does, or if the folder is not writable.
Result<OpenSideCar> OpenSideCarOf(const load::LoadedModel& model, const std::string& path,
                                  SideCarPart part);

// InvalidArgument unless `path` is empty, or ends in ".svg" and names no other kind of file, so
// that only pictures are replaced.
Status CheckPlotPath(const std::string& path);

}  // namespace thermocline::tools
