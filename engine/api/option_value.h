// The value of an option: its target and its allowed values. The command line and the daemon's
// configuration are both built from these.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/base/status.h"

namespace thermocline {

struct IntValue {
  int* target;
  int min = std::numeric_limits<int>::min(), max = std::numeric_limits<int>::max();
};
struct UnsignedValue {  // any number of 64 bits
  std::uint64_t* target;
};
struct DoubleValue {  // never NaN
  double* target;
  double min = std::numeric_limits<double>::lowest(), max = std::numeric_limits<double>::max();
};
struct BoolValue {
  bool* target;
};
struct BytesValue {  // a number, or one with a unit: 8GiB
  std::int64_t* target;
  std::int64_t min = 0;  // -1: the program may choose
};
struct MebibytesValue {  // a whole number of MiB, stored as bytes; -1 stays -1
  std::int64_t* target;
  int min = -1, max = 1 << 24;
};
struct TextValue {
  std::string* target;
  std::vector<std::string> choices = {};  // empty = anything
  bool optional = false;                  // "" is allowed: not given
};
// An enum by its names; made by Choice.
struct ChoiceValue {
  void* target;
  std::span<const std::string_view> names;  // of the values 0, 1, ...
  bool optional;                            // "" is allowed: -1, not given
  int (*get)(const void* target);
  void (*set)(void* target, int value);

  std::string_view name() const {
    const int value = get(target);
    return value < 0 ? std::string_view() : names[value];
  }
};

using OptionValue = std::variant<IntValue, UnsignedValue, DoubleValue, BoolValue, BytesValue,
                                 MebibytesValue, TextValue, ChoiceValue>;

template <typename Enum>
ChoiceValue Choice(Enum& target, std::span<const std::string_view> names) {
  return {.target = &target,
          .names = names,
          .optional = false,
          .get = [](const void* p) { return static_cast<int>(*static_cast<const Enum*>(p)); },
          .set = [](void* p, int value) { *static_cast<Enum*>(p) = static_cast<Enum>(value); }};
}
template <typename Enum>
ChoiceValue Choice(std::optional<Enum>& target, std::span<const std::string_view> names) {
  using Optional = std::optional<Enum>;
  return {.target = &target,
          .names = names,
          .optional = true,
          .get =
              [](const void* p) {
                const auto& value = *static_cast<const Optional*>(p);
                return value.has_value() ? static_cast<int>(*value) : -1;
              },
          .set =
              [](void* p, int value) {
                *static_cast<Optional*>(p) =
                    value < 0 ? std::nullopt : Optional(static_cast<Enum>(value));
              }};
}

// Sets the option `name` to the value of `text`. InvalidArgument states the value and the expected
// values.
Status SetValue(const OptionValue& value, const std::string& name, const std::string& text);

// Returns the present value in a form that SetValue takes.
std::string TextOf(const OptionValue& value);

// True if two values of one option are the same; `take` copies that of `from`.
bool SameValue(const OptionValue& to, const OptionValue& from, bool take);

}  // namespace thermocline
