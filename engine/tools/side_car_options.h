// The option --side-car of the subcommands that write a model's side-car.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "engine/exec/loaded_model.h"
#include "engine/predictor/side_car.h"

namespace thermocline::tools {

void AddSideCarOption(CLI::App& app, std::string& path);

// A side-car that is being filled.
struct OpenSideCar {
  std::string path;
  predictor::SideCar content;

  Status Write() const { return predictor::WriteSideCar(path, content); }
};

// What `path` (the model's default, if empty) holds; an empty one if there is none. Fails, before
// anything is computed, as ReadSideCar does and if the folder cannot be written.
Result<OpenSideCar> OpenSideCarOf(const exec::LoadedModel& model, const std::string& path);

}  // namespace thermocline::tools
