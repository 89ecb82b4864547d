// The command line: subcommands and their options. Hides CLI11, whose header takes ten seconds to
// compile: command_line.cc alone includes it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/api/option_value.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace thermocline::tools {

// An option that was added. Borrows: lives as long as the command line.
class OptionRef {
 public:
  explicit OptionRef(CLI::Option* option) : option_(option) {}
  OptionRef Required(bool required = true) const;
  OptionRef ShowDefault() const;  // the value that it has now, in --help
  // Refused unless the other option is given, or if it is.
  OptionRef Needs(OptionRef other) const;
  OptionRef Excludes(OptionRef other) const;
  // Whether it was on the command line; known after parsing.
  bool given() const;

 private:
  CLI::Option* option_;
};

// The options of one subcommand. Values are written while the command line is parsed.
class OptionSet {
 public:
  explicit OptionSet(CLI::App& app) : app_(app) {}
  // `names`: "-t,--threads"; without a dash a positional argument. A bool is a flag; "!--no-x"
  // makes it false.
  OptionRef Add(const std::string& names, const OptionValue& value, const std::string& help) const;
  // Any value.
  OptionRef Add(const std::string& names, std::string& text, const std::string& help) const;
  OptionRef Add(const std::string& names, bool& flag, const std::string& help) const;
  OptionRef Add(const std::string& names, std::vector<std::string>& texts,
                const std::string& help) const;
  // The same options, whose next ones stand under a heading in --help.
  OptionSet Under(const std::string& heading) const;
  // Requires: an option of this name was added.
  OptionRef Find(const std::string& name) const;
  // Behind the options in --help.
  void AddFooter(const std::string& text) const;
  // Called when this subcommand's options have been read; one function at most.
  void OnParsed(std::function<void()> function) const;

 private:
  OptionRef Grouped(CLI::Option* option) const;

  CLI::App& app_;
  std::string heading_ = {};  // "" = the first one
};

class CommandLine {
 public:
  CommandLine(const std::string& program, const std::string& version, const std::string& help);
  // Lives as long as this.
  OptionSet AddCommand(const std::string& name, const std::string& help);
  // Reads the options of one subcommand. The exit status where there is nothing to run: help was
  // printed, or what is wrong.
  std::optional<int> Parse(int argc, char** argv);
  // The subcommand. Requires: Parse returned nothing.
  std::string command() const;

 private:
  std::shared_ptr<CLI::App> app_;  // shared: its type is not known here
};

}  // namespace thermocline::tools
