// The values of single options that have a grammar of their own. `target` and `options` are
// borrowed, as in option_value.h.
#pragma once

#include "loadtest/options/option_value.h"
#include "loadtest/options/options.h"

namespace thermocline::loadtest {

// Sets options.url. Uses options.api: a gRPC address has no path.
OptionValue ServerUrl(LoadOptions& options);
// Sets options.sweep_steps from comma-separated numbers. Uses options.sweep: numbers of users are
// integers.
OptionValue SweepSteps(LoadOptions& options);

// A URL, unparsed.
OptionValue UrlText(std::string& target);
OptionValue JsonObjectText(std::string& target);

// An API key: the key itself, the first line of a file, or the value of an environment variable. It
// must consist of visible ASCII characters.
OptionValue Key(std::string& target);
OptionValue KeyOfFile(std::string& target);
OptionValue KeyOfVariable(std::string& target);

// --slo and --goodput, parsed by slo.h.
OptionValue Objectives(std::vector<SloTerm>& target);
OptionValue Goodput(GoodLimits& target);

}  // namespace thermocline::loadtest
