// The one table of the load tester's options: names, allowed values, rules, help. A new option is a
// member of LoadOptions and a row here; parsing, checks and --help are made from the row.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "loadtest/options/option_value.h"
#include "loadtest/options/options.h"

namespace thermocline::loadtest {

// A condition of an option that is given, checked when all values are read.
struct OptionRule {
  const char* why;  // the error after the option's name: "needs --rate"
  std::function<bool()> holds;
};

struct LoadOption {
  const char* names;  // "-r,--rate"; without a dash, the required argument
  OptionValue value;
  const char* help;
  const char* otherwise = "";              // the default in words, after value.shown
  std::vector<const char*> excludes = {};  // options that contradict it
  std::vector<OptionRule> rules = {};
  bool secret = false;     // omitted from reports
  const char* group = "";  // the heading in --help

  // The long name, "--rate".
  std::string name() const;
  bool is_flag() const { return value.type.empty(); }
  bool is_argument() const { return names[0] != '-'; }
  // The help with the default: "users at once [1]".
  std::string Described() const;
};

// Every option, with its target in `options`, in the order of --help, which is also the order of
// reading. Requires: `options` has the defaults.
std::vector<LoadOption> OptionsOf(LoadOptions& options);

}  // namespace thermocline::loadtest
