#include "engine/tools/common/command_line.h"

#include <CLI/CLI.hpp>

#include "engine/base/strings.h"
#include "engine/tools/common/console.h"

namespace thermocline::tools {
namespace {

// CLI::Range lets NaN pass.
CLI::Validator NumberIn(double low, double high) {
  const auto check = [=](const std::string& text) -> std::string {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && value >= low && value <= high) return "";
    return StrCat("not a number from ", low, " to ", high, ": ", text);
  };
  return {check, StrCat("in [", low, " - ", high, "]")};
}

CLI::Validator IntegerIn(int low, int high) {
  const IntValue any{nullptr};
  const std::string range = low == any.min && high == any.max ? ""
                            : high == any.max                 ? StrCat(" from ", low, " on")
                                                              : StrCat(" from ", low, " to ", high);
  const auto check = [=](const std::string& text) -> std::string {
    const auto value = base::ParseNumber<int>(text);
    if (value.has_value() && *value >= low && *value <= high) return "";
    return StrCat("'", text, "' is not a whole number", range);
  };
  return {check, range.empty()
                     ? ""
                     : StrCat("in [", low, " - ", high == any.max ? "" : StrCat(high), "]")};
}

// As base::ParseBytes reads it.
CLI::Validator SizeText() {
  const auto check = [](const std::string& text) {
    return base::ParseBytes(text).has_value() ? "" : "not a size, as 8GiB or 500M: " + text;
  };
  return {check, "SIZE"};
}

// Adds an option for each kind of value.
struct Adder {
  CLI::App& app;
  const std::string& names;
  const std::string& help;

  CLI::Option* operator()(const IntValue& value) const {
    CLI::Option* option = app.add_option(names, *value.target, help);
    return option->check(IntegerIn(value.min, value.max));
  }
  CLI::Option* operator()(const DoubleValue& value) const {
    CLI::Option* option = app.add_option(names, *value.target, help);
    const DoubleValue any{nullptr};
    if (value.min == any.min && value.max == any.max) return option;
    return option->check(NumberIn(value.min, value.max));
  }
  CLI::Option* operator()(const BoolValue& value) const {
    return app.add_flag(names, *value.target, help);
  }
  CLI::Option* operator()(const BytesValue& value) const {
    const auto set = [value](const std::string& text) { *value.target = *base::ParseBytes(text); };
    return app.add_option_function<std::string>(names, set, help)->check(SizeText());
  }
  CLI::Option* operator()(const MebibytesValue& value) const {
    const auto set = [value](int mebibytes) {
      *value.target = mebibytes < 0 ? -1 : std::int64_t{mebibytes} << 20;
    };
    return app.add_option_function<int>(names, set, help)->check(CLI::Range(value.min, value.max));
  }
  CLI::Option* operator()(const TextValue& value) const {
    CLI::Option* option = app.add_option(names, *value.target, help);
    return value.choices.empty() ? option : option->check(CLI::IsMember(value.choices));
  }
  CLI::Option* operator()(const ChoiceValue& value) const {
    const auto set = [value](const std::string& text) {
      const auto found = std::find(value.names.begin(), value.names.end(), text);
      value.set(value.target, static_cast<int>(found - value.names.begin()));
    };
    return app.add_option_function<std::string>(names, set, help)
        ->default_function([value] { return std::string(value.name()); })
        ->check(CLI::IsMember(std::vector<std::string>(value.names.begin(), value.names.end())));
  }
};

}  // namespace

OptionRef OptionRef::Required(bool required) const {
  return OptionRef(option_->required(required));
}
OptionRef OptionRef::ShowDefault() const { return OptionRef(option_->capture_default_str()); }
OptionRef OptionRef::Needs(OptionRef other) const {
  return OptionRef(option_->needs(other.option_));
}
OptionRef OptionRef::Excludes(OptionRef other) const {
  return OptionRef(option_->excludes(other.option_));
}
bool OptionRef::given() const { return option_->count() > 0; }

OptionRef OptionSet::Add(const std::string& names, const OptionValue& value,
                         const std::string& help) const {
  return OptionRef(std::visit(Adder{app_, names, help}, value));
}
OptionRef OptionSet::Add(const std::string& names, std::string& text,
                         const std::string& help) const {
  return OptionRef(app_.add_option(names, text, help));
}
OptionRef OptionSet::Add(const std::string& names, bool& flag, const std::string& help) const {
  return OptionRef(app_.add_flag(names, flag, help));
}
OptionRef OptionSet::Add(const std::string& names, std::uint64_t& number,
                         const std::string& help) const {
  return OptionRef(app_.add_option(names, number, help));
}
OptionRef OptionSet::Add(const std::string& names, std::vector<std::string>& texts,
                         const std::string& help) const {
  return OptionRef(app_.add_option(names, texts, help));
}

OptionRef OptionSet::Find(const std::string& name) const {
  return OptionRef(app_.get_option(name));
}
void OptionSet::AddFooter(const std::string& text) const { app_.footer(text); }
void OptionSet::OnParsed(std::function<void()> function) const {
  app_.final_callback(std::move(function));
}

CommandLine::CommandLine(const std::string& program, const std::string& version,
                         const std::string& help)
    : app_(std::make_shared<CLI::App>(help, program)) {
  app_->require_subcommand(1);
  app_->set_version_flag("--version", version);
}

OptionSet CommandLine::AddCommand(const std::string& name, const std::string& help) {
  return OptionSet(*app_->add_subcommand(name, help));
}

std::optional<int> CommandLine::Parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app_->exit(error) == 0 ? kExitDone : kExitUsage;
  }
  return std::nullopt;
}

std::string CommandLine::command() const { return app_->get_subcommands().front()->get_name(); }

}  // namespace thermocline::tools
