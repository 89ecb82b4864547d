// The options of every subcommand that runs a model, from engine/api/option_table.h.
#pragma once

#include <memory>

#include "engine/api/option_table.h"
#include "engine/load/loaded_model.h"
#include "tools/common/command_line.h"

namespace thermocline::tools {

// Adds the options of one group.
void AddOptions(const OptionSet& set, OptionGroup group, ModelOptions& options);
// Adds MODEL and the options of every subcommand that runs one.
void AddModelOptions(const OptionSet& set, ModelOptions& options);
// Adds the options of subcommands that decode: neurons and memory.
void AddDecodeOptions(const OptionSet& set, ModelOptions& options);
// Adds options for measurements: disabled parts, and recordings.
void AddMeasurementOptions(const OptionSet& set, ModelOptions& options);
// Adds the options of speculative decoding: --draft and its settings, and --spec, the mode. A draft
// or a source without a mode means auto.
void AddSpecOptions(const OptionSet& set, ModelOptions& options);

// The same options with every layer in one mode, for subcommands that observe dense layers.
ModelOptions WithMode(ModelOptions options, FfnMode mode);

// Shows a progress bar on the terminal.
Result<std::unique_ptr<load::LoadedModel>> LoadWithProgress(const ModelOptions& options,
                                                            const load::WorkSizes& sizes = {});

}  // namespace thermocline::tools
