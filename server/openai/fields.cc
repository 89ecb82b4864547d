#include "server/openai/fields.h"

#include <cmath>

namespace thermocline::openai {

void Fields::Fail(std::string_view name, const std::string& message, const char* code) {
  if (error_.has_value()) return;
  error_ = ApiError{.http_status = 400,
                    .type = "invalid_request_error",
                    .code = code,
                    .param = std::string(name),
                    .message = message,
                    .details = {}};
}

std::int64_t Fields::Int(std::string_view name, std::int64_t absent, std::int64_t min,
                         std::int64_t max) {
  const Json* value = body_.Find(name);
  if (value == nullptr) return absent;
  constexpr double kExact = 9007199254740992.0;  // 2^53: beyond it a double is no exact integer
  const bool whole =
      value->is_int() || (value->is_number() && std::fabs(value->as_double()) <= kExact &&
                          std::trunc(value->as_double()) == value->as_double());
  if (!whole) {
    Fail(name, StrCat("'", name, "' must be a whole number, not ",
                      value->is_number() ? value->Dump() : StrCat("a ", value->type_name())));
    return absent;
  }
  const std::int64_t number =
      value->is_int() ? value->as_int() : static_cast<std::int64_t>(value->as_double());
  if (number < min || number > max) {
    Fail(name, StrCat("'", name, "' is ", number, "; it must lie in [", min, ", ", max, "]"));
    return absent;
  }
  return number;
}

double Fields::Double(std::string_view name, double absent, double min, double max) {
  const Json* value = body_.Find(name);
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
  const Json* value = body_.Find(name);
  if (value == nullptr) return absent;
  if (!value->is_bool()) {
    Fail(name, StrCat("'", name, "' must be a boolean, not a ", value->type_name()));
    return absent;
  }
  return value->as_bool();
}

std::string Fields::String(std::string_view name, std::string absent) {
  const Json* value = body_.Find(name);
  if (value == nullptr) return absent;
  if (!value->is_string()) {
    Fail(name, StrCat("'", name, "' must be a string, not a ", value->type_name()));
    return absent;
  }
  return value->as_string();
}

}  // namespace thermocline::openai
