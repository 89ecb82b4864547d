// Typed, range-checked access to the fields of a request body. An explicit null means absent.
#pragma once

#include <optional>
#include <string>

#include "engine/base/json.h"
#include "server/openai/error.h"

namespace thermocline::openai {

// Collects the first error; getters after it return their defaults. Thread-compatible.
class Fields {
 public:
  explicit Fields(const Json& body) : body_(body) {}

  bool ok() const { return !error_.has_value(); }
  const ApiError& error() const { return *error_; }

  const Json* Find(std::string_view name) const { return body_.Find(name); }
  // 1 and 1.0 are both whole numbers.
  std::int64_t Int(std::string_view name, std::int64_t absent, std::int64_t min, std::int64_t max);
  double Double(std::string_view name, double absent, double min, double max);
  bool Bool(std::string_view name, bool absent);
  std::string String(std::string_view name, std::string absent);
  // Refuses the request (400) for a field's value.
  void Fail(std::string_view name, const std::string& message, const char* code = "");

 private:
  const Json& body_;
  std::optional<ApiError> error_;
};

}  // namespace thermocline::openai
