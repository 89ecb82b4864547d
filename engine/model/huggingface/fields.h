// Typed look-ups of fields of config.json with uniform error messages.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>

#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/model/model_config.h"

namespace thermocline::model::hf {

// Families name the same field differently: the first of `keys` that exists counts.
using Names = std::initializer_list<const char*>;

inline const Json* FindFirst(const Json& config, Names keys) {
  for (const char* key : keys) {
    const Json* value = config.Find(key);
    if (value != nullptr && !value->is_null()) return value;
  }
  return nullptr;
}

inline Result<int> Int(const Json& config, Names keys, std::optional<int> absent = {}) {
  const Json* value = FindFirst(config, keys);
  if (value == nullptr && absent.has_value()) return *absent;
  if (value == nullptr) return base::InvalidArgument("field '", *keys.begin(), "' is missing");
  // A list has a value for each layer, and all must be equal.
  if (value->is_array() && !value->as_array().empty()) {
    const Json& first = value->as_array().front();
    for (const Json& item : value->as_array()) {
      if (item.Dump() != first.Dump())
        return base::Unimplemented("field '", *keys.begin(),
                                   "' differs by layer, which is not supported");
    }
    value = &first;
  }
  if (!value->is_int() || value->as_int() < 0 || value->as_int() > kConfigNumberMax) {
    return base::InvalidArgument("field '", *keys.begin(), "' is ", value->Dump(), ", not a size");
  }
  return static_cast<int>(value->as_int());
}

// Returns an empty list if none of the fields exists.
inline Result<Json::Array> List(const Json& config, Names keys) {
  const Json* value = FindFirst(config, keys);
  if (value == nullptr) return Json::Array{};
  if (!value->is_array())
    return base::InvalidArgument("field '", *keys.begin(), "' is ", value->Dump(),
                                 ", not an array");
  return value->as_array();
}

inline Result<double> Double(const Json& config, Names keys, double absent) {
  const Json* value = FindFirst(config, keys);
  if (value == nullptr) return absent;
  if (!value->is_number())
    return base::InvalidArgument("field '", *keys.begin(), "' is ", value->Dump(),
                                 ", not a number");
  return value->as_double();
}

inline std::string String(const Json& config, Names keys, const std::string& absent) {
  const Json* value = FindFirst(config, keys);
  return value != nullptr && value->is_string() ? value->as_string() : absent;
}

inline bool Flag(const Json& config, const char* key, bool absent) {
  const Json* value = config.Find(key);
  return value != nullptr && value->is_bool() ? value->as_bool() : absent;
}

}  // namespace thermocline::model::hf
