// The one table of model options: name on the command line and in the daemon's configuration, what
// the value may be, help. A new option is a member of ModelOptions and a row here.
#pragma once

#include <vector>

#include "engine/api/model_options.h"
#include "engine/api/option_value.h"

namespace thermocline {

// Which subcommands take an option; each takes some groups. The daemon takes all that have a key.
enum class OptionGroup {
  kModel,    // every subcommand that runs a model
  kContext,  // what needs a context of its own
  kFfn,      // what decodes: neurons,
  kMemory,   // memory and flash,
  kHot,      // the hot tier
  kDraft,    // what drafts are like
  kSpec,     // the mode of speculative decoding
  kTrace,
  kAblation,  // what is left out, for measurements
};

struct ModelOption {
  OptionGroup group;
  // "-t,--threads"; without a dash a required argument; "!--no-x" makes a bool false; "" = not on
  // the command line.
  const char* flag;
  const char* key;  // "engine.threads"; "" = not in the configuration
  OptionValue value;
  const char* help;
  bool everyday = false;  // first in --help; all others stand under HeadingOf their group
};

// "Speculative decoding".
const char* HeadingOf(OptionGroup group);

// Every option, each with a pointer into `options`. The order is that of --help.
std::vector<ModelOption> OptionsOf(ModelOptions& options);

}  // namespace thermocline
