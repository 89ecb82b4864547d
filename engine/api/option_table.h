// The one table of model options: name on the command line and in the daemon's configuration,
// allowed values, help. A new option is a member of ModelOptions and a row here.
#pragma once

#include <vector>

#include "engine/api/model_options.h"
#include "engine/api/option_value.h"

namespace thermocline {

// The subcommands that accept an option; each subcommand takes some groups. The daemon takes all
// options that have a key.
enum class OptionGroup {
  kModel,    // every subcommand that runs a model
  kContext,  // subcommands that need a context of their own
  kFfn,      // subcommands that decode: neurons,
  kMemory,   // memory and flash,
  kHot,      // the hot tier
  kDraft,    // properties of drafts
  kSpec,     // the mode of speculative decoding
  kTrace,
  kAblation,  // disabled mechanisms, for measurements
};

struct ModelOption {
  OptionGroup group;
  // "-t,--threads"; a required argument has no dash; "!--no-x" sets a bool to false; "" = not on
  // the command line.
  const char* flag;
  const char* key;  // "engine.threads"; "" = not in the configuration
  OptionValue value;
  const char* help;
  bool everyday = false;  // first in --help; the others follow under HeadingOf their group
};

// "Speculative decoding".
const char* HeadingOf(OptionGroup group);

// Every option, each with a pointer into `options`. The order is that of --help.
std::vector<ModelOption> OptionsOf(ModelOptions& options);

}  // namespace thermocline
