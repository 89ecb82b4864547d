#include "loadtest/options/option_value.h"

#include <algorithm>

#include "loadtest/measure/slo.h"

namespace thermocline::loadtest {
namespace {

// A numeric option; its target may be an optional.
template <typename T, typename Target>
OptionValue Number(Target& target, const char* kind, const char* type, T min, T max) {
  const auto parse = [=](std::string_view name, const std::string& text) -> Result<T> {
    const auto value = base::ParseNumber<T>(text);
    if (value.has_value() && *value >= min && *value <= max) return *value;  // false for NaN
    return BadValue(name, text, StrCat(kind, " from ", min, " to ", max));
  };
  OptionValue value = Parsed(target, parse);
  value.type = type;
  if constexpr (std::is_same_v<T, Target>) {
    if (target >= min && target <= max) value.shown = StrCat(target);
  }
  return value;
}

// A duration as text: "200ms", "10s".
std::string SecondsText(double seconds) {
  return seconds > 0 && seconds < 1 ? StrCat(seconds * 1e3, "ms")
                                    : StrCat(seconds, seconds > 0 ? "s" : "");
}

}  // namespace

Status BadValue(std::string_view name, std::string_view text, std::string_view expected) {
  return base::InvalidArgument(name, " '", base::Shorten(text, 100), "': expected ", expected)
      .WithField(name);
}

OptionValue Integer(int& target, int min, int max) {
  return Number(target, "a whole number", "N", min, max);
}
OptionValue Integer(std::uint64_t& target, std::uint64_t min, std::uint64_t max) {
  return Number(target, "a whole number", "N", min, max);
}
OptionValue Integer(std::optional<std::uint64_t>& target, std::uint64_t min, std::uint64_t max) {
  return Number(target, "a whole number", "N", min, max);
}
OptionValue Real(double& target, double min, double max) {
  return Number(target, "a number", "X", min, max);
}
OptionValue Real(std::optional<double>& target, double min, double max) {
  return Number(target, "a number", "X", min, max);
}

OptionValue Bytes(std::optional<double>& target) {
  const auto parse = [](std::string_view name, const std::string& text) -> Result<double> {
    const auto bytes = base::ParseBytes(text);
    if (!bytes.has_value()) return BadValue(name, text, "a size, as 1MiB");
    return static_cast<double>(*bytes);
  };
  OptionValue value = Parsed(target, parse);
  value.type = "SIZE";
  return value;
}

OptionValue Seconds(double& target, double min) {
  const auto parse = [min](std::string_view name, const std::string& text) -> Result<double> {
    const auto seconds = ParseDuration(text);
    if (seconds.has_value() && *seconds >= min && *seconds <= kTimeMaxS) return *seconds;
    return BadValue(name, text, "a time, as 90, 1.5s, 200ms, 10m or 24h");
  };
  OptionValue value = Parsed(target, parse);
  value.type = "TIME";
  value.shown = SecondsText(target);
  return value;
}

OptionValue Tokens(TokenRange& target, int min) {
  const auto parse = [min](std::string_view name, const std::string& text) -> Result<TokenRange> {
    const auto range = ParseTokenRange(text, min);
    if (range.has_value()) return *range;
    return BadValue(name, text, StrCat("a number of tokens from ", min, " on, or LOW-HIGH"));
  };
  OptionValue value = Parsed(target, parse);
  value.type = "RANGE";
  const auto [low, high] = target;
  value.shown = low == high ? StrCat(low) : StrCat(low, "-", high);
  return value;
}

OptionValue Text(std::string& target) {
  OptionValue value =
      Parsed(target,
             [](std::string_view, const std::string& text) -> Result<std::string> { return text; });
  value.shown = target;
  return value;
}

OptionValue Flag(bool& target, bool value) {
  return {.set = [&target, value](std::string_view, const std::string&) -> Status {
            target = value;
            return OkStatus();
          },
          .type = ""};
}

Result<int> ParseChoice(std::string_view name, const std::string& text,
                        std::span<const std::string_view> names) {
  const auto found = std::find(names.begin(), names.end(), text);
  if (found != names.end()) return static_cast<int>(found - names.begin());
  std::string list;
  for (const std::string_view known : names) list += StrCat(list.empty() ? "" : ", ", known);
  return BadValue(name, text, "one of " + list);
}

std::string Alternatives(std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) text += StrCat(text.empty() ? "" : "|", name);
  return text;
}

}  // namespace thermocline::loadtest
