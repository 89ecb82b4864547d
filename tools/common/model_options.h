// The options of every subcommand that runs a model, as engine/api/option_table.h lists them.
#pragma once

#include <memory>

#include "engine/api/option_table.h"
#include "engine/load/loaded_model.h"
#include "tools/common/command_line.h"

namespace thermocline::tools {

// Adds the options of one group.
void AddOptions(const OptionSet& set, OptionGroup group, ModelOptions& options);
// Adds MODEL and what every subcommand that runs one takes.
void AddModelOptions(const OptionSet& set, ModelOptions& options);
// Adds what subcommands that decode take besides: neurons and memory.
void AddDecodeOptions(const OptionSet& set, ModelOptions& options);
// Adds what is left out, or written down, for measurements.
void AddMeasurementOptions(const OptionSet& set, ModelOptions& options);
// Adds those of speculative decoding: --draft and what drafts are like, and --spec, the mode. A
// draft or a source without a mode means auto.
void AddSpecOptions(const OptionSet& set, ModelOptions& options);

// The same with every layer in one mode: for the subcommands that look at what dense layers do.
ModelOptions WithMode(ModelOptions options, FfnMode mode);

// With a progress bar on the terminal.
Result<std::unique_ptr<load::LoadedModel>> LoadWithProgress(const ModelOptions& options,
                                                            const load::WorkSizes& sizes = {});

}  // namespace thermocline::tools
