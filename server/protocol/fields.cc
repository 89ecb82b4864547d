#include "server/protocol/fields.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "engine/base/bytes.h"
#include "engine/base/interruption.h"
#include "engine/base/strings.h"
#include "server/core/request_limits.h"
#include "server/protocol/client_fields.h"

namespace thermocline::protocol {
namespace {

std::optional<std::int64_t> WholeNumber(const Json& value) {
  if (value.is_int()) return value.as_int();
  constexpr double kExact = 9007199254740992.0;  // 2^53: larger doubles are not exact integers
  if (!value.is_number() || !(std::fabs(value.as_double()) <= kExact) ||
      std::trunc(value.as_double()) != value.as_double())
    return std::nullopt;
  return static_cast<std::int64_t>(value.as_double());
}

bool SameValue(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return a.as_double() == b.as_double();
  return a.Dump() == b.Dump();
}

const ClientField* FindClientField(std::string_view name) {
  const auto* const end = std::end(kClientFields);
  const auto* const found =
      std::find_if(std::begin(kClientFields), end,
                   [name](const ClientField& field) { return field.name == name; });
  return found == end ? nullptr : found;
}

bool ChangesNothing(const ClientField& field, const Json& value) {
  if (field.values == kAnyValue) return true;
  const auto values = base::ParseJson(field.values);
  const Json::Array& list = values->as_array();
  return std::any_of(list.begin(), list.end(),
                     [&value](const Json& each) { return SameValue(each, value); });
}

std::size_t Letters(std::string_view name) {
  return std::count_if(name.begin(), name.end(),
                       [](char c) { return std::isalpha(base::ByteOf(c)) != 0; });
}

// Each unknown name is compared with known ones, which takes about 0.6 us. So many unknown names
// are no typing errors.
constexpr int kComparedMax = 1 << 16;

// True if `name` may be a misspelling of `known`.
bool IsNear(std::string_view name, std::string_view known) {
  constexpr std::size_t kLettersMin = 5;
  constexpr int kEditsMax = 2;
  return Letters(name) >= kLettersMin && name.size() <= kIgnoredNameBytesMax &&
         base::EditDistance(name, known) <= kEditsMax;
}

}  // namespace

void Fields::Fail(std::string_view name, const std::string& message) {
  FailWith(name, base::InvalidArgument(message));
}

void Fields::FailUnsupported(std::string_view name, const std::string& message) {
  FailWith(name, base::Unimplemented(message));
}

void Fields::FailWith(std::string_view name, const Status& status) {
  if (status_.ok()) status_ = status.WithField(name);
}

void Fields::CheckUnknown(bool strict, bool near_misses) {
  if (!body_.is_object()) return;
  for (const auto& [name, value] : body_.as_object())
    if (!value.is_null() && !seen_.contains(name)) CheckUnknownField(name, value, near_misses);
  if (!strict || unknown_.empty()) return;
  FailUnsupported(unknown_[0], StrCat("'", unknown_[0],
                                      "' is not known here, and server.strict_fields refuses "
                                      "unknown fields"));
}

void Fields::CheckUnknownField(const std::string& name, const Json& value, bool near_misses) {
  if (const ClientField* known = FindClientField(name)) {
    if (ChangesNothing(*known, value)) return;
    return FailUnsupported(name, StrCat("'", name, "' of ", base::Shorten(value.Dump(), 64),
                                        " is not supported here: ", known->why));
  }
  const std::string_view nearest = near_misses ? Nearest(name) : std::string_view();
  if (nearest.empty()) return Ignore(name);
  FailUnsupported(name, StrCat("'", base::Shorten(name, kIgnoredNameBytesMax),
                               "' is not known here; did you mean '", nearest, "'?"));
}

void Fields::Ignore(std::string name) {
  name = base::Shorten(name, kIgnoredNameBytesMax);
  if (unknown_.empty()) unknown_.push_back(name);
  LeaveOut(std::move(name));
}

void Fields::IgnoreOthers(std::string_view name, const Json& object,
                          std::initializer_list<std::string_view> known) {
  if (!object.is_object() || base::Interrupted()) return;
  for (const auto& [key, value] : object.as_object()) {
    const std::string& member = key;
    if (value.is_null() || std::find(known.begin(), known.end(), member) != known.end()) continue;
    const auto meant = std::find_if(known.begin(), known.end(), [&](std::string_view other) {
      return ++compared_ <= kComparedMax && object.Find(other) == nullptr && IsNear(member, other);
    });
    if (meant == known.end()) {
      Ignore(StrCat(name, ".", member));
    } else {
      FailUnsupported(name, StrCat("'", name, ".", base::Shorten(member, kIgnoredNameBytesMax),
                                   "' is not known here; did you mean '", *meant, "'?"));
    }
  }
}

void Fields::LeaveOut(std::string name) {
  const bool noted = std::find(ignored_.begin(), ignored_.end(), name) != ignored_.end();
  if (!noted && ignored_.size() < kIgnoredFieldsMax) ignored_.push_back(std::move(name));
}

void Fields::Adopt(std::string_view name, const Fields& inner) {
  for (const std::string& each : inner.unknown_) Ignore(StrCat(name, ".", each));
  for (const std::string& each : inner.ignored_) LeaveOut(StrCat(name, ".", each));
  if (inner.ok()) return;
  const std::string& field = inner.status_.field();
  FailWith(field.empty() ? std::string(name) : StrCat(name, ".", field), inner.status_);
}

std::string_view Fields::Nearest(std::string_view name) const {
  for (const std::string& known : seen_)
    if (body_.Find(known) == nullptr && IsNear(name, known)) return known;
  return {};
}

const Json* Fields::FindNumber(std::string_view name, double min, double max) const {
  seen_.emplace(name);
  if (log_ != nullptr) (*log_)[std::string(name)] = {.min = min, .max = max};
  return body_.Find(name);
}

std::int64_t Fields::Int(std::string_view name, std::int64_t absent, std::int64_t min,
                         std::int64_t max) {
  const Json* value = FindNumber(name, static_cast<double>(min), static_cast<double>(max));
  if (value == nullptr) return absent;
  const auto number = WholeNumber(*value);
  if (!number.has_value()) {
    NotWhole(name, *value, StrCat("[", min, ", ", max, "]"));
    return absent;
  }
  if (*number < min || *number > max) {
    Fail(name, StrCat("'", name, "' is ", *number, "; it must lie in [", min, ", ", max, "]"));
    return absent;
  }
  return *number;
}

std::uint64_t Fields::Bits64(std::string_view name, std::uint64_t absent) {
  const Json* value =
      FindNumber(name, static_cast<double>(INT64_MIN), static_cast<double>(UINT64_MAX));
  if (value == nullptr) return absent;
  if (value->is_big_int()) return value->as_big_int();
  const auto number = WholeNumber(*value);
  if (!number.has_value()) NotWhole(name, *value, StrCat("[", INT64_MIN, ", ", UINT64_MAX, "]"));
  return number.value_or(static_cast<std::int64_t>(absent));
}

void Fields::NotWhole(std::string_view name, const Json& value, const std::string& range) {
  Fail(name, StrCat("'", name, "' must be a whole number in ", range, ", not ",
                    value.is_number() ? value.Dump() : StrCat("a ", value.type_name())));
}

double Fields::Double(std::string_view name, double absent, double min, double max) {
  const Json* value = FindNumber(name, min, max);
  if (value == nullptr) return absent;
  if (!value->is_number()) {
    Fail(name, StrCat("'", name, "' must be a number, not a ", value->type_name()));
    return absent;
  }
  if (!(value->as_double() >= min && value->as_double() <= max)) {
    Fail(name,
         StrCat("'", name, "' is ", value->Dump(), "; it must lie in [", min, ", ", max, "]"));
    return absent;
  }
  return value->as_double();
}

bool Fields::Bool(std::string_view name, bool absent) {
  const Json* value = Find(name);
  if (value == nullptr) return absent;
  if (!value->is_bool()) {
    Fail(name, StrCat("'", name, "' must be a boolean, not a ", value->type_name()));
    return absent;
  }
  return value->as_bool();
}

std::string Fields::String(std::string_view name, std::string absent) {
  const Json* value = Find(name);
  if (value == nullptr) return absent;
  if (!value->is_string()) {
    Fail(name, StrCat("'", name, "' must be a string, not a ", value->type_name()));
    return absent;
  }
  return value->as_string();
}

std::optional<std::vector<int>> Fields::Ints(std::string_view name, std::size_t count_max) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  auto numbers = ToInts(*value);
  if (numbers.has_value() && numbers->size() <= count_max) return numbers;
  Fail(name, StrCat("'", name, "' must be a list of at most ", count_max, " token ids"));
  return std::nullopt;
}

std::optional<std::vector<std::string>> Fields::Strings(std::string_view name,
                                                        std::size_t count_max,
                                                        std::size_t bytes_max) {
  return ReadStrings(name, count_max, bytes_max, /*some_empty=*/false);
}

std::vector<std::string> Fields::Stops(std::string_view name) {
  auto stops = ReadStrings(name, server::kStopsMax, server::kStopBytesMax, /*some_empty=*/true)
                   .value_or(std::vector<std::string>());
  std::erase(stops, "");
  return stops;
}

std::optional<std::vector<std::string>> Fields::ReadStrings(std::string_view name,
                                                            std::size_t count_max,
                                                            std::size_t bytes_max,
                                                            bool some_empty) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  const Json::Array list = value->is_array() ? value->as_array() : Json::Array{*value};
  std::vector<std::string> out;
  if (value->is_string() && value->as_string().empty()) return out;
  if (list.size() > count_max) {
    Fail(name,
         StrCat("'", name, "' has ", list.size(), " entries; at most ", count_max, " are allowed"));
    return std::nullopt;
  }
  for (const Json& item : list) {
    const std::size_t bytes = item.is_string() ? item.as_string().size() : 0;
    if (!item.is_string() || (bytes == 0 && !some_empty) || bytes > bytes_max) {
      Fail(name, StrCat("'", name, "' must be a string or a list of strings of ",
                        some_empty ? 0 : 1, " to ", bytes_max, " bytes"));
      return std::nullopt;
    }
    out.push_back(item.as_string());
  }
  return out;
}

Result<Json> ParseBody(std::string_view body) {
  ASSIGN_OR_RETURN(Json json, base::ParseJson(body));
  if (!json.is_object())
    return base::InvalidArgument("the body must be a JSON object, not a ", json.type_name());
  return json;
}

std::optional<std::vector<int>> ToInts(const Json& list) {
  if (!list.is_array()) return std::nullopt;
  std::vector<int> out;
  out.reserve(list.as_array().size());
  for (const Json& item : list.as_array()) {
    const auto number = WholeNumber(item);
    if (!number.has_value() || *number < 0 || *number > INT32_MAX) return std::nullopt;
    out.push_back(static_cast<int>(*number));
  }
  return out;
}

}  // namespace thermocline::protocol
