// Typed look-ups of GGUF metadata with uniform error messages.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/model/model_config.h"

namespace thermocline::model {

class Keys {
 public:
  explicit Keys(const Json& metadata) : metadata_(metadata) {}

  bool Has(const std::string& key) const { return metadata_.Find(key) != nullptr; }

  Result<int> Int(const std::string& key, std::optional<int> absent = {}) const {
    const Json* value = metadata_.Find(key);
    if (value == nullptr && absent.has_value()) return *absent;
    if (value == nullptr) return base::InvalidArgument("key '", key, "' is missing");
    // Some files have a number for each layer; only one value for all layers is supported.
    if (value->is_array() && !value->as_array().empty()) {
      const Json& first = value->as_array().front();
      for (const Json& item : value->as_array()) {
        if (!item.is_int() || !first.is_int() || item.as_int() != first.as_int())
          return base::Unimplemented("key '", key, "' differs by layer, which is not supported");
      }
      value = &first;
    }
    if (!value->is_int())
      return base::InvalidArgument("key '", key, "' is a ", value->type_name(), ", not an integer");
    if (value->as_int() < -kConfigNumberMax || value->as_int() > kConfigNumberMax) {
      return base::InvalidArgument("key '", key, "' is ", value->as_int(), ", out of range");
    }
    return static_cast<int>(value->as_int());
  }

  // Returns the numbers of `layers` layers: a list, which may be longer, or one number for all.
  Result<std::vector<int>> IntsByLayer(const std::string& key, int layers) const {
    const Json* value = metadata_.Find(key);
    if (value == nullptr || !value->is_array()) {
      ASSIGN_OR_RETURN(const int one, Int(key));
      return std::vector<int>(layers, one);
    }
    const Json::Array& items = value->as_array();
    if (std::ssize(items) < layers)
      return base::InvalidArgument("key '", key, "' has ", items.size(), " items for ", layers,
                                   " layers");
    std::vector<int> out;
    for (int layer = 0; layer < layers; ++layer) {
      const Json& item = items[layer];
      if (!item.is_int() || item.as_int() < 0 || item.as_int() > kConfigNumberMax)
        return base::InvalidArgument("key '", key, "' holds ", item.Dump(), ", not a size");
      out.push_back(static_cast<int>(item.as_int()));
    }
    return out;
  }

  // As IntsByLayer. Requires: the key is there, or InvalidArgument names it.
  Result<std::vector<double>> DoublesByLayer(const std::string& key, int layers) const {
    const Json* value = metadata_.Find(key);
    if (value == nullptr || !value->is_array()) {
      ASSIGN_OR_RETURN(const double one, Double(key));
      return std::vector<double>(layers, one);
    }
    ASSIGN_OR_RETURN(auto values, Numbers(key));
    if (std::ssize(values) < layers)
      return base::InvalidArgument("key '", key, "' has ", values.size(), " items for ", layers,
                                   " layers");
    return values;
  }

  Result<double> Double(const std::string& key, std::optional<double> absent = {}) const {
    const Json* value = metadata_.Find(key);
    if (value == nullptr && absent.has_value()) return *absent;
    if (value == nullptr) return base::InvalidArgument("key '", key, "' is missing");
    if (!value->is_number())
      return base::InvalidArgument("key '", key, "' is a ", value->type_name(), ", not a number");
    return value->as_double();
  }

  Result<bool> Bool(const std::string& key, bool absent) const {
    const Json* value = metadata_.Find(key);
    if (value == nullptr) return absent;
    if (!value->is_bool())
      return base::InvalidArgument("key '", key, "' is a ", value->type_name(), ", not a boolean");
    return value->as_bool();
  }

  Result<std::string> String(const std::string& key, const std::string& absent = "") const {
    const Json* value = metadata_.Find(key);
    if (value == nullptr) return absent;
    if (!value->is_string())
      return base::InvalidArgument("key '", key, "' is a ", value->type_name(), ", not a string");
    return value->as_string();
  }

  Result<std::vector<std::string>> Strings(const std::string& key) const {
    return Array<std::string>(
        key, "a string", [](const Json& item) { return item.is_string(); },
        [](const Json& item) { return item.as_string(); });
  }

  Result<std::vector<double>> Numbers(const std::string& key) const {
    return Array<double>(
        key, "a number", [](const Json& item) { return item.is_number(); },
        [](const Json& item) { return item.as_double(); });
  }

 private:
  // Returns an empty array if the key is missing.
  template <typename T, typename Is, typename As>
  Result<std::vector<T>> Array(const std::string& key, const char* wanted, const Is& is,
                               const As& as) const {
    std::vector<T> out;
    const Json* value = metadata_.Find(key);
    if (value == nullptr) return out;
    if (!value->is_array())
      return base::InvalidArgument("key '", key, "' is a ", value->type_name(), ", not an array");
    out.reserve(value->as_array().size());
    for (const Json& item : value->as_array()) {
      if (!is(item))
        return base::InvalidArgument("key '", key, "' holds a ", item.type_name(), ", not ",
                                     wanted);
      out.push_back(as(item));
    }
    return out;
  }

  const Json& metadata_;
};

}  // namespace thermocline::model
