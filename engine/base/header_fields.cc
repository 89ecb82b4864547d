#include "engine/base/header_fields.h"

#include <cmath>

namespace thermocline::base {

HeaderFields HeaderFields::Object(const char* key) {
  static const Json kEmpty{Json::Object()};
  const Json* value = json_.Find(key);
  const bool found = value != nullptr && value->is_object();
  if (!found) Fail(key, " is no object");
  return {found ? *value : kEmpty, StrCat(where_, key, "."), advice_, status_};
}

std::int64_t HeaderFields::Int(const char* key, std::int64_t min, std::int64_t max) {
  const Json* value = json_.Find(key);
  if (value != nullptr && value->is_int() && value->as_int() >= min && value->as_int() <= max)
    return value->as_int();
  Fail(key, StrCat(" is ", value == nullptr ? "missing" : value->Dump(),
                   ", expected an integer of ", min, " to ", max));
  return 0;
}

double HeaderFields::Number(const char* key) {
  const Json* value = json_.Find(key);
  if (value != nullptr && value->is_number()) return value->as_double();
  Fail(key,
       StrCat(" is ", value == nullptr ? "missing" : value->Dump(), ", expected a finite number"));
  return 0;
}

float HeaderFields::Float(const char* key) {
  const double value = Number(key);
  if (std::abs(value) <= std::numeric_limits<float>::max()) return static_cast<float>(value);
  Fail(key, StrCat(" is ", value, ", more than a float holds"));
  return 0;
}

bool HeaderFields::Bool(const char* key) {
  const Json* value = json_.Find(key);
  if (value != nullptr && value->is_bool()) return value->as_bool();
  Fail(key, " is no boolean");
  return false;
}

std::string HeaderFields::Text(const char* key) {
  const Json* value = json_.Find(key);
  if (value != nullptr && value->is_string()) return value->as_string();
  Fail(key, " is no string");
  return "";
}

const Json::Array& HeaderFields::List(const char* key, std::size_t count) {
  static const Json::Array kEmpty;
  const Json* value = json_.Find(key);
  if (value != nullptr && value->is_array() && value->as_array().size() == count)
    return value->as_array();
  Fail(key, StrCat(" has ", value != nullptr && value->is_array() ? value->as_array().size() : 0,
                   " entries, expected ", count));
  return kEmpty;
}

std::uint64_t HeaderFields::FindArray(const char* key, std::int64_t count, std::uint64_t bytes,
                                      const ArrayArea& area) {
  const Json* value = json_.Find(key);
  if (value == nullptr || !value->is_object()) {
    Fail(key, " is no array of the file");
    return 0;
  }
  HeaderFields array(*value, StrCat(where_, key, "."), advice_, status_);
  const std::uint64_t at = array.Int("at", 0, INT64_MAX);
  const std::int64_t found = array.Int("count", 0, INT64_MAX);
  if (!status_.ok()) return 0;
  const std::uint64_t room = area.end - area.begin;
  if (found != count) {
    Fail(key, StrCat(" has ", found, " elements, expected ", count));
  } else if (at % kArrayAlignment != 0 || at > room || bytes > room - at) {
    Fail(key, StrCat(" lies at ", at, " with ", bytes, " bytes, outside of the file's ", room,
                     " or at no multiple of ", kArrayAlignment));
  }
  return at;
}

void HeaderFields::Fail(const char* key, std::string_view what) {
  if (status_.ok()) status_ = InvalidArgument(where_, key, what, advice_);
}

}  // namespace thermocline::base
