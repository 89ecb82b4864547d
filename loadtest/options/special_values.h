// The values of single options: texts with a grammar of their own. `target` and `options` are
// borrowed, as in option_value.h.
#pragma once

#include "loadtest/options/option_value.h"
#include "loadtest/options/options.h"

namespace thermocline::loadtest {

// Into options.url. Reads options.api: an address of gRPC has no path.
OptionValue ServerUrl(LoadOptions& options);
// Into options.sweep_steps: numbers with commas between them. Reads options.sweep: users are whole.
OptionValue SweepSteps(LoadOptions& options);

// A URL, as it is written.
OptionValue UrlText(std::string& target);
OptionValue JsonObjectText(std::string& target);

// An API key: itself, the first line of a file, the value of an environment variable. Visible ASCII
// characters alone.
OptionValue Key(std::string& target);
OptionValue KeyOfFile(std::string& target);
OptionValue KeyOfVariable(std::string& target);

// --slo and --goodput, as slo.h reads them.
OptionValue Objectives(std::vector<SloTerm>& target);
OptionValue Goodput(GoodLimits& target);

}  // namespace thermocline::loadtest
