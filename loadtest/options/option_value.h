// The value of an option: its target, its allowed values, its text in --help.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/base/index.h"
#include "engine/base/status.h"
#include "loadtest/workload/prompts.h"

namespace thermocline::loadtest {

struct OptionValue {
  // Sets the target from `text`. InvalidArgument names the option, the text and the expected value.
  std::function<Status(std::string_view name, const std::string& text)> set;
  std::string type = "TEXT";  // in --help; "" = a flag, which takes no text
  std::string shown = {};  // the target's initial value, in the form that `set` parses; "" = none
};

// The error "NAME 'TEXT': expected EXPECTED".
Status BadValue(std::string_view name, std::string_view text, std::string_view expected);

inline constexpr double kTimeMaxS = 366.0 * 24 * 3600;

// The kinds of values; ranges are inclusive. `target` is borrowed. A target outside its range
// counts as unset.
OptionValue Integer(int& target, int min, int max);
OptionValue Integer(std::uint64_t& target, std::uint64_t min, std::uint64_t max);
OptionValue Integer(std::optional<std::uint64_t>& target, std::uint64_t min, std::uint64_t max);
OptionValue Real(double& target, double min, double max);
OptionValue Real(std::optional<double>& target, double min, double max);
OptionValue Bytes(std::optional<double>& target);
OptionValue Seconds(double& target, double min);
OptionValue Tokens(TokenRange& target, int min);
OptionValue Text(std::string& target);
OptionValue Flag(bool& target, bool value = true);
// A value that `parse` makes from the option's name and its text.
template <typename Target, typename Parse>
OptionValue Parsed(Target& target, Parse parse) {
  return {.set = [&target, parse](std::string_view name, const std::string& text) -> Status {
    ASSIGN_OR_RETURN(target, parse(name, text));
    return OkStatus();
  }};
}

// The index of `text` in `names`.
Result<int> ParseChoice(std::string_view name, const std::string& text,
                        std::span<const std::string_view> names);
// The names as "chat|completions".
std::string Alternatives(std::span<const std::string_view> names);

// An enum, or an optional one, whose values 0, 1, ... have these names.
template <typename Enum, typename Target>
OptionValue ChoiceInto(Target& target, std::span<const std::string_view> names) {
  const auto parse = [names](std::string_view name, const std::string& text) -> Result<Enum> {
    ASSIGN_OR_RETURN(const int place, ParseChoice(name, text, names));
    return static_cast<Enum>(place);
  };
  OptionValue value = Parsed(target, parse);
  value.type = Alternatives(names);
  return value;
}
template <typename Enum>
OptionValue Choice(std::optional<Enum>& target, std::span<const std::string_view> names) {
  return ChoiceInto<Enum>(target, names);
}
template <typename Enum>
OptionValue Choice(Enum& target, std::span<const std::string_view> names) {
  OptionValue value = ChoiceInto<Enum>(target, names);
  value.shown = names[base::Index(target)];
  return value;
}

}  // namespace thermocline::loadtest
