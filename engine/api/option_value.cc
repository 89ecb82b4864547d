#include "engine/api/option_value.h"

#include "engine/base/index.h"
#include "engine/base/strings.h"

namespace thermocline {
namespace {

using base::InvalidArgument;

template <typename T, typename Range>
Result<T> ParseIn(const Range& range, const char* kind, const std::string& name,
                  const std::string& text) {
  const auto value = base::ParseNumber<T>(text);
  const bool is_number = value.has_value() && *value == *value;  // no NaN
  if (!is_number) return InvalidArgument(name, ": '", text, "' is no ", kind);
  if (!(*value >= range.min && *value <= range.max)) {
    return InvalidArgument(name, ": ", *value, " is outside [", range.min, ", ", range.max, "]");
  }
  return *value;
}

Status Set(const IntValue& value, const std::string& name, const std::string& text) {
  ASSIGN_OR_RETURN(*value.target, ParseIn<int>(value, "whole number", name, text));
  return OkStatus();
}

Status Set(const UnsignedValue& value, const std::string& name, const std::string& text) {
  const auto number = base::ParseNumber<std::uint64_t>(text);
  if (!number.has_value())
    return InvalidArgument(name, ": '", text, "' is no whole number from 0 on");
  *value.target = *number;
  return OkStatus();
}

Status Set(const DoubleValue& value, const std::string& name, const std::string& text) {
  ASSIGN_OR_RETURN(*value.target, ParseIn<double>(value, "number", name, text));
  return OkStatus();
}

Status Set(const BoolValue& value, const std::string& name, const std::string& text) {
  if (text != "true" && text != "false")
    return InvalidArgument(name, ": '", text, "' is neither true nor false");
  *value.target = text == "true";
  return OkStatus();
}

Status Set(const BytesValue& value, const std::string& name, const std::string& text) {
  const bool chosen = value.min < 0 && text == "-1";
  const auto bytes = chosen ? value.min : base::ParseBytes(text);
  if (!bytes.has_value()) {
    return InvalidArgument(name, ": '", text,
                           "' is no number of bytes, as 8GiB, 500MB or 1073741824");
  }
  *value.target = *bytes;
  return OkStatus();
}

Status Set(const MebibytesValue& value, const std::string& name, const std::string& text) {
  ASSIGN_OR_RETURN(const int mebibytes, ParseIn<int>(value, "whole number", name, text));
  *value.target = mebibytes < 0 ? -1 : std::int64_t{mebibytes} << 20;
  return OkStatus();
}

// Index of `text` in `names`; -1 for "" if that is allowed.
template <typename Names>
Result<int> Find(const Names& names, bool optional, const std::string& name,
                 const std::string& text) {
  if (optional && text.empty()) return -1;
  std::string list = optional ? "''" : "";
  for (int i = 0; i < base::IntSize(names); ++i) {
    if (names[i] == text) return i;
    list += StrCat(list.empty() ? "'" : ", '", names[i], "'");
  }
  return InvalidArgument(name, ": '", text, "' is none of ", list);
}

Status Set(const TextValue& value, const std::string& name, const std::string& text) {
  if (!value.choices.empty())
    RETURN_IF_ERROR(Find(value.choices, value.optional, name, text).status());
  *value.target = text;
  return OkStatus();
}

Status Set(const ChoiceValue& value, const std::string& name, const std::string& text) {
  ASSIGN_OR_RETURN(const int choice, Find(value.names, value.optional, name, text));
  value.set(value.target, choice);
  return OkStatus();
}

template <typename Value>
std::string Text(const Value& value) {
  return StrCat(*value.target);
}
std::string Text(const BoolValue& value) { return *value.target ? "true" : "false"; }
std::string Text(const MebibytesValue& value) {
  return StrCat(*value.target < 0 ? *value.target : *value.target >> 20);
}
std::string Text(const ChoiceValue& value) { return std::string(value.name()); }

template <typename Value>
bool Same(const Value& to, const Value& from, bool take) {
  const bool same = *to.target == *from.target;
  if (take) *to.target = *from.target;
  return same;
}

bool Same(const ChoiceValue& to, const ChoiceValue& from, bool take) {
  const int value = from.get(from.target);
  const bool same = to.get(to.target) == value;
  if (take) to.set(to.target, value);
  return same;
}

}  // namespace

Status SetValue(const OptionValue& value, const std::string& name, const std::string& text) {
  return std::visit([&](const auto& kind) { return Set(kind, name, text); }, value);
}

std::string TextOf(const OptionValue& value) {
  return std::visit([](const auto& kind) { return Text(kind); }, value);
}

bool SameValue(const OptionValue& to, const OptionValue& from, bool take) {
  return std::visit(
      [&](const auto& kind) {
        return Same(kind, std::get<std::decay_t<decltype(kind)>>(from), take);
      },
      to);
}

}  // namespace thermocline
