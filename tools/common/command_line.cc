#include "tools/common/command_line.h"

#include <algorithm>
#include <cstdio>

#include <CLI/CLI.hpp>

#include "engine/base/strings.h"
#include "tools/common/command_hints.h"
#include "tools/common/console.h"

namespace thermocline::tools {
namespace {

// CLI::Range would accept NaN.
CLI::Validator NumberIn(double low, double high) {
  const auto check = [=](const std::string& text) -> std::string {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && value >= low && value <= high) return "";
    return StrCat("not a number from ", low, " to ", high, ": ", text);
  };
  return {check, ""};
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
  return {check, ""};
}

// Accepts the sizes that base::ParseBytes parses.
CLI::Validator SizeText() {
  const auto check = [](const std::string& text) {
    return base::ParseBytes(text).has_value() ? "" : "not a size, as 8GiB or 500M: " + text;
  };
  return {check, ""};
}

template <typename Names>
std::string Alternatives(const Names& names) {
  std::string text;
  for (const auto& name : names) text += StrCat(text.empty() ? "" : "|", name);
  return text;
}

// Case-insensitive: the value becomes the listed name.
CLI::Validator OneOf(std::vector<std::string> names) {
  return CLI::IsMember(std::move(names), CLI::ignore_case).description("");
}

// Adds an option for each kind of value.
struct Adder {
  CLI::App& app;
  const std::string& names;
  const std::string& help;

  CLI::Option* operator()(const IntValue& value) const {
    CLI::Option* option = app.add_option(names, *value.target, help)->type_name("N");
    return option->check(IntegerIn(value.min, value.max));
  }
  CLI::Option* operator()(const UnsignedValue& value) const {
    return app.add_option(names, *value.target, help)->type_name("N");
  }
  CLI::Option* operator()(const DoubleValue& value) const {
    CLI::Option* option = app.add_option(names, *value.target, help)->type_name("X");
    const DoubleValue any{nullptr};
    if (value.min == any.min && value.max == any.max) return option;
    return option->check(NumberIn(value.min, value.max));
  }
  CLI::Option* operator()(const BoolValue& value) const {
    if (!names.starts_with('!')) return app.add_flag(names, *value.target, help);
    return app.add_flag_callback(
        names.substr(1), [value] { *value.target = false; }, help);
  }
  CLI::Option* operator()(const BytesValue& value) const {
    const auto set = [value](const std::string& text) { *value.target = *base::ParseBytes(text); };
    return app.add_option_function<std::string>(names, set, help)
        ->type_name("SIZE")
        ->check(SizeText());
  }
  CLI::Option* operator()(const MebibytesValue& value) const {
    const auto set = [value](int mebibytes) {
      *value.target = mebibytes < 0 ? -1 : std::int64_t{mebibytes} << 20;
    };
    return app.add_option_function<int>(names, set, help)
        ->type_name("MIB")
        ->check(IntegerIn(value.min, value.max));
  }
  CLI::Option* operator()(const TextValue& value) const {
    CLI::Option* option = app.add_option(names, *value.target, help)->type_name("TEXT");
    if (value.choices.empty()) return option;
    return option->type_name(Alternatives(value.choices))->transform(OneOf(value.choices));
  }
  CLI::Option* operator()(const ChoiceValue& value) const {
    const auto set = [value](const std::string& text) {
      const auto found = std::find(value.names.begin(), value.names.end(), text);
      value.set(value.target, static_cast<int>(found - value.names.begin()));
    };
    return app.add_option_function<std::string>(names, set, help)
        ->default_function([value] { return std::string(value.name()); })
        ->type_name(Alternatives(value.names))
        ->transform(OneOf(std::vector<std::string>(value.names.begin(), value.names.end())));
  }
};

// Formats --help: lines of at most kHelpColumns, and defaults after an option's description.
class Help final : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool positional) const override {
    std::string text =
        StrCat("  ", make_option_name(option, positional), positional ? "" : TypeOf(*option));
    if (text.size() + 2 > kHelpIndent) text += '\n', text.append(kHelpIndent, ' ');
    if (text.size() < kHelpIndent) text.resize(kHelpIndent, ' ');
    return StrCat(text, Wrapped(Described(*option)), "\n");
  }

 private:
  static constexpr std::size_t kHelpColumns = 80, kHelpIndent = 26;

  static std::string TypeOf(const CLI::Option& option) {
    return option.get_type_size() == 0 ? "" : " " + option.get_type_name();
  }
  static std::string Described(const CLI::Option& option) {
    std::string text = option.get_description();
    for (const CLI::Option* other : option.get_needs())
      text += StrCat(" (with ", other->get_name(), ")");
    for (const CLI::Option* other : option.get_excludes())
      text += StrCat(" (not with ", other->get_name(), ")");
    if (!option.get_default_str().empty()) text += StrCat(" [", option.get_default_str(), "]");
    return text;
  }
  static std::string Wrapped(const std::string& text) {
    std::string out;
    std::size_t column = kHelpIndent;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find(' ', begin), text.size());
      if (column > kHelpIndent && column + 1 + end - begin > kHelpColumns) {
        out += StrCat("\n", std::string(kHelpIndent, ' '));
        column = kHelpIndent;
      } else if (begin > 0) {
        out += ' ', ++column;
      }
      out += text.substr(begin, end - begin);
      column += end - begin;
      begin = end + 1;
    }
    return out;
  }
};

// Says that a command or an option does not exist.
int RefuseName(const std::string& where, const std::string& what, const std::string& hint) {
  std::fprintf(stderr, "%s: there is no %s%s%s\nRun with --help for more information.\n",
               where.c_str(), what.c_str(), hint.empty() ? "" : "; ", hint.c_str());
  return kExitUsage;
}

int RefuseCommand(const CLI::App& app, const std::string& name) {
  std::vector<std::string> known;
  for (const CLI::App* command : app.get_subcommands({})) known.push_back(command->get_name());
  return RefuseName(app.get_name(), StrCat("command '", name, "'"), HintForCommand(name, known));
}

// `passes`: the command takes any option behind "--".
int RefuseOption(const CLI::App& app, const CLI::App& command, const std::string& text,
                 bool passes) {
  const std::string name = text.substr(0, text.find('='));
  std::vector<std::string> known;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& each : option->get_lnames()) known.push_back("--" + each);
  return RefuseName(StrCat(app.get_name(), " ", command.get_name()), StrCat("option '", name, "'"),
                    passes ? HintForPassedOption(name, known) : HintForOption(name, known));
}

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

OptionRef OptionSet::Grouped(CLI::Option* option) const {
  if (!heading_.empty()) option->group(heading_);
  return OptionRef(option);
}
OptionRef OptionSet::Add(const std::string& names, const OptionValue& value,
                         const std::string& help) const {
  return Grouped(std::visit(Adder{app_, names, help}, value));
}
OptionRef OptionSet::Add(const std::string& names, std::string& text,
                         const std::string& help) const {
  return Grouped(app_.add_option(names, text, help));
}
OptionRef OptionSet::Add(const std::string& names, bool& flag, const std::string& help) const {
  return Grouped(app_.add_flag(names, flag, help));
}
OptionRef OptionSet::Add(const std::string& names, std::vector<std::string>& texts,
                         const std::string& help) const {
  return Grouped(app_.add_option(names, texts, help));
}
OptionSet OptionSet::Under(const std::string& heading) const {
  OptionSet under(app_, passed_);
  under.heading_ = heading;
  return under;
}

OptionRef OptionSet::Find(const std::string& name) const {
  return OptionRef(app_.get_option(name));
}
void OptionSet::PassOn(std::vector<std::string>& arguments) const {
  passed_[app_.get_name()] = &arguments;
}
void OptionSet::AddFooter(const std::string& text) const { app_.footer(text); }
void OptionSet::OnParsed(std::function<void()> function) const {
  app_.final_callback(std::move(function));
}

CommandLine::CommandLine(const std::string& program, const std::string& version,
                         const std::string& help)
    : app_(std::make_shared<CLI::App>(help, program)) {
  app_->formatter(std::make_shared<Help>());  // subcommands inherit it
  app_->require_subcommand(1);
  app_->set_version_flag("--version", version);
}

OptionSet CommandLine::AddCommand(const std::string& name, const std::string& help) {
  return {*app_->add_subcommand(name, help), passed_};
}

int CommandLine::TakePassed(int argc, char** argv) const {
  const auto target = argc > 1 ? passed_.find(argv[1]) : passed_.end();
  if (target == passed_.end()) return argc;
  char** const end = argv + argc;
  char** const mark = std::find(argv, end, std::string_view("--"));
  if (mark != end) target->second->assign(mark + 1, end);
  return static_cast<int>(mark - argv);
}

std::optional<int> CommandLine::Parse(int argc, char** argv) {
  const auto is_first = [argv](const CLI::App* command) { return command->get_name() == argv[1]; };
  if (argc > 1 && argv[1][0] != '-' && app_->get_subcommands(is_first).empty())
    return RefuseCommand(*app_, argv[1]);
  try {
    app_->parse(TakePassed(argc, argv), argv);
  } catch (const CLI::ExtrasError& error) {
    const CLI::App& command = *app_->get_subcommands().front();
    const std::vector<std::string> extras = command.remaining();
    const auto option = std::find_if(extras.begin(), extras.end(),
                                     [](const std::string& text) { return text.starts_with('-'); });
    if (option != extras.end())
      return RefuseOption(*app_, command, *option, passed_.contains(command.get_name()));
    return app_->exit(error) == 0 ? kExitDone : kExitUsage;
  } catch (const CLI::ParseError& error) {
    return app_->exit(error) == 0 ? kExitDone : kExitUsage;
  }
  return std::nullopt;
}

std::string CommandLine::command() const { return app_->get_subcommands().front()->get_name(); }

}  // namespace thermocline::tools
