// A JSON value: parse, look up, write. Values keep the order of their keys.
//
// nlohmann/json does the parsing (engine/base/json.cc); no type of it leaves that file.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/base/status.h"

namespace thermocline::base {

class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json() = default;
  // The copy is an assignment, because libstdc++ assumes that this variant always holds a value
  // (__never_valueless), so a copy constructor that runs out of memory would destroy a value that
  // does not exist.
  Json(const Json& other) : Json() { value_ = other.value_; }  // NOLINT: not in the initializer
  Json(Json&&) = default;
  Json& operator=(const Json&) = default;
  Json& operator=(Json&&) = default;
  ~Json() = default;
  Json(std::nullptr_t) {}                                       // NOLINT: implicit by design
  Json(bool value) : value_(value) {}                           // NOLINT
  Json(double value) : value_(value) {}                         // NOLINT
  Json(const char* value) : value_(std::string(value)) {}       // NOLINT
  Json(std::string_view value) : value_(std::string(value)) {}  // NOLINT
  Json(std::string value) : value_(std::move(value)) {}         // NOLINT
  Json(Array value) : value_(std::move(value)) {}               // NOLINT
  Json(Object value) : value_(std::move(value)) {}              // NOLINT
  template <typename T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) Json(T value)
      : value_(static_cast<std::int64_t>(value)) {}  // NOLINT
  // A whole number above INT64_MAX stays exact; any other is stored as std::int64_t.
  static Json OfUnsigned(std::uint64_t value);
  // A value that only Dump reads, given as its JSON text. Requires: one JSON value.
  static Json OfWritten(std::string text);

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<std::int64_t>(value_); }
  // A whole number in (INT64_MAX, UINT64_MAX].
  bool is_big_int() const;
  // A parsed number that neither 64 bits nor a double can hold: its text is kept.
  bool is_decimal() const { return std::holds_alternative<Decimal>(value_); }
  bool is_number() const {
    return is_int() || is_decimal() || std::holds_alternative<double>(value_);
  }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  bool is_written() const { return std::holds_alternative<Written>(value_); }
  // "null", "boolean", "integer", "number", "string", "array", "object" or "written".
  std::string_view type_name() const;

  // Requires: the value has that type.
  bool as_bool() const { return std::get<bool>(value_); }
  std::int64_t as_int() const { return std::get<std::int64_t>(value_); }
  std::uint64_t as_big_int() const;
  const std::string& as_decimal() const { return std::get<Decimal>(value_).text; }
  double as_double() const;  // of any number, the nearest
  const std::string& as_written() const { return std::get<Written>(value_).text; }
  const std::string& as_string() const { return std::get<std::string>(value_); }
  const Array& as_array() const { return std::get<Array>(value_); }
  const Object& as_object() const { return std::get<Object>(value_); }
  Array& array() { return std::get<Array>(value_); }
  Object& object() { return std::get<Object>(value_); }
  std::string& string() { return std::get<std::string>(value_); }

  // Member `key` of an object; nullptr if this is not an object, the key is absent, or its value is
  // null.
  const Json* Find(std::string_view key) const;
  // Like Find, but a present null is returned too.
  const Json* FindRaw(std::string_view key) const;
  Json* FindRaw(std::string_view key) {
    return const_cast<Json*>(static_cast<const Json*>(this)->FindRaw(key));
  }
  // Appends or replaces a member. Requires: an object.
  void Set(std::string_view key, Json value);

  // One line, or indented by `indent` spaces a level. Ill-formed UTF-8 becomes U+FFFD; NaN and
  // infinities null. Ends early if interrupted (base::Interrupted).
  std::string Dump(int indent = -1) const;
  // Appends the same text, on one line, to `out`.
  void AppendTo(std::string& out) const;

 private:
  friend Json JsonOfNumber(std::string_view text, double value);
  struct Decimal {
    std::string text;
  };
  struct Written {
    std::string text;
  };
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object, Decimal,
               Written>
      value_;
};

// The number that JSON writes as `text`, whose nearest double is `value`: that double if it equals
// `text`, otherwise a number that keeps `text`.
Json JsonOfNumber(std::string_view text, double value);

// InvalidArgument with the byte position on syntax errors, ill-formed UTF-8, a NUL byte or more
// than `depth_max` levels, or if it is interrupted (base::Interrupted).
Result<Json> ParseJson(std::string_view text, int depth_max = 64);

// Appends `text` between quotes with JSON's escapes; characters above ASCII stay UTF-8.
void AppendJsonString(std::string& out, std::string_view text);

// The shortest decimal that reads back as `value`, always with a point or exponent ("1.0").
std::string FormatDouble(double value);

}  // namespace thermocline::base

namespace thermocline {
using base::Json;
}
