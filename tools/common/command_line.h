// The command line: subcommands and their options. It hides CLI11, whose header takes ten seconds
// to compile: only command_line.cc includes it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
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

// A reference to an added option, valid while the command line lives.
class OptionRef {
 public:
  explicit OptionRef(CLI::Option* option) : option_(option) {}
  OptionRef Required(bool required = true) const;
  OptionRef ShowDefault() const;  // --help shows the current value as the default
  // Requires the other option, or excludes it.
  OptionRef Needs(OptionRef other) const;
  OptionRef Excludes(OptionRef other) const;
  // True if the option was on the command line. Requires: it has been parsed.
  bool given() const;

 private:
  CLI::Option* option_;
};

// The targets of arguments that are passed on to another program, by the subcommand's name.
using PassedArguments = std::map<std::string, std::vector<std::string>*>;

// The options of one subcommand. Values are written while the command line is parsed.
class OptionSet {
 public:
  OptionSet(CLI::App& app, PassedArguments& passed) : app_(app), passed_(passed) {}
  // `names`: "-t,--threads"; without a dash a positional argument. A bool is a flag, which
  // "!--no-x" sets to false.
  OptionRef Add(const std::string& names, const OptionValue& value, const std::string& help) const;
  // Adds an option that accepts any text.
  OptionRef Add(const std::string& names, std::string& text, const std::string& help) const;
  OptionRef Add(const std::string& names, bool& flag, const std::string& help) const;
  OptionRef Add(const std::string& names, std::vector<std::string>& texts,
                const std::string& help) const;
  // The same set; options added through the returned one appear under a heading in --help.
  OptionSet Under(const std::string& heading) const;
  // Lets the command line go on behind "--" with arguments that are not parsed: they are stored as
  // they are.
  void PassOn(std::vector<std::string>& arguments) const;
  // Requires: an option of this name was added.
  OptionRef Find(const std::string& name) const;
  // Adds text after the options in --help.
  void AddFooter(const std::string& text) const;
  // `function` is called when this subcommand's options have been parsed; at most one function.
  void OnParsed(std::function<void()> function) const;

 private:
  OptionRef Grouped(CLI::Option* option) const;

  CLI::App& app_;
  PassedArguments& passed_;
  std::string heading_ = {};  // "" = the first one
};

class CommandLine {
 public:
  CommandLine(const std::string& program, const std::string& version, const std::string& help);
  // The returned set is valid while this lives.
  OptionSet AddCommand(const std::string& name, const std::string& help);
  // Parses the options of one subcommand. Returns the exit status if there is no command to run:
  // help or an error was printed.
  std::optional<int> Parse(int argc, char** argv);
  // The name of the subcommand. Requires: Parse returned nullopt.
  std::string command() const;

 private:
  // The number of arguments in front of "--", if the subcommand passes those behind it on.
  int TakePassed(int argc, char** argv) const;

  std::shared_ptr<CLI::App> app_;  // shared_ptr, since the type is incomplete here
  PassedArguments passed_;
};

}  // namespace thermocline::tools
