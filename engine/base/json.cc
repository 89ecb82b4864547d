#include "engine/base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <nlohmann/json.hpp>

#include "engine/base/bytes.h"
#include "engine/base/index.h"
#include "engine/base/interruption.h"

namespace thermocline::base {
namespace {

using Library = nlohmann::json;

// Builds the value from the library's events, so that order is kept and depth is bounded.
class Builder : public nlohmann::json_sax<Library> {
 public:
  explicit Builder(int depth_max, std::size_t values_max = SIZE_MAX)
      : depth_max_(depth_max), values_max_(values_max) {}

  bool null() override { return Add(Json()); }
  bool boolean(bool value) override { return Add(Json(value)); }
  bool number_integer(number_integer_t value) override { return Add(Json(value)); }
  bool number_unsigned(number_unsigned_t value) override { return Add(Json::OfUnsigned(value)); }
  bool number_float(number_float_t value, const string_t& text) override {
    return Add(JsonOfNumber(text, value));
  }
  bool string(string_t& value) override { return Add(Json(std::move(value))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return Open(Json(Json::Object())); }
  bool key(string_t& value) override {
    keys_.push_back(std::move(value));
    return true;
  }
  bool end_object() override { return Close(); }
  bool start_array(std::size_t) override { return Open(Json(Json::Array())); }
  bool end_array() override { return Close(); }
  bool parse_error(std::size_t position, const std::string&,
                   const Library::exception& error) override {
    if (error_.empty()) {
      std::string what = error.what();
      if (const std::size_t tag = what.find("] "); tag != std::string::npos) what.erase(0, tag + 2);
      const std::size_t colon = what.find(": ");
      error_ =
          StrCat("invalid JSON at byte ", position, ": ",
                 ReplaceInvalidUtf8(colon == std::string::npos ? what : what.substr(colon + 2)));
    }
    return false;
  }

  const std::string& error() const { return error_; }
  bool too_many() const { return values_ > values_max_; }
  Json Take() { return std::move(root_); }

 private:
  bool Open(Json container) {
    if (base::IntSize(open_) >= depth_max_) {
      error_ = StrCat("invalid JSON: nested deeper than ", depth_max_, " levels");
      return false;
    }
    open_.push_back(std::move(container));
    return true;
  }
  bool Close() {
    Json done = std::move(open_.back());
    open_.pop_back();
    return Add(std::move(done));
  }
  bool Add(Json value) {
    if (++values_ % kValuesUnasked == 0 && Interrupted()) return false;
    if (too_many()) return false;
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().is_array()) {
      open_.back().array().push_back(std::move(value));
    } else {
      open_.back().object().emplace_back(std::move(keys_.back()), std::move(value));
      keys_.pop_back();
    }
    return true;
  }

  static constexpr std::size_t kValuesUnasked = 4096;  // values between interruption checks: 0.5 ms

  int depth_max_;
  const std::size_t values_max_;
  std::size_t values_ = 0;
  Json root_;
  std::vector<Json> open_;
  std::vector<std::string> keys_;  // of the objects being read, innermost last
  std::string error_;
};

// The value of a decimal number, independent of its notation: its sign, its digits without leading
// and trailing zeros, and the power of ten of the first digit.
struct Digits {
  bool negative = false;
  std::string digits = {};
  std::int64_t power = 0;
  bool operator==(const Digits&) const = default;
};

Digits Significant(std::string_view text) {
  Digits out{.negative = text.starts_with('-')};
  std::int64_t point = -1, exponent = 0;
  const std::size_t mark = std::min(text.find_first_of("eE"), text.size());
  for (const char c : text.substr(0, mark)) {
    if (c == '.') point = out.digits.size();
    if (c >= '0' && c <= '9') out.digits += c;
  }
  if (mark < text.size()) {
    const std::string_view behind = text.substr(mark + (text[mark + 1] == '+' ? 2 : 1));
    std::from_chars(behind.data(), behind.data() + behind.size(), exponent);
  }
  const auto zeros = std::min(out.digits.find_first_not_of('0'), out.digits.size());
  out.power = (point < 0 ? static_cast<std::int64_t>(out.digits.size()) : point) -
              static_cast<std::int64_t>(zeros) + exponent;
  out.digits.erase(0, zeros);
  while (out.digits.ends_with('0')) out.digits.pop_back();
  if (out.digits.empty()) out.power = 0;
  return out;
}

bool ParseWhole(const std::string& text, std::uint64_t& value) {
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  return read.ec == std::errc() && read.ptr == end;
}

void AppendNewline(std::string& out, int indent, int level) {
  if (indent < 0) return;
  out.push_back('\n');
  out.append(Area(indent, level), ' ');
}

constexpr std::size_t kMembersUnasked = 4096;  // members between two checks for interruption: 0.5
                                               // ms

void AppendValue(std::string& out, const Json& value, int indent, int level) {
  if (value.is_null()) {
    out += "null";
  } else if (value.is_bool()) {
    out += value.as_bool() ? "true" : "false";
  } else if (value.is_int()) {
    out += StrCat(value.as_int());
  } else if (value.is_decimal()) {
    out += value.as_decimal();
  } else if (value.is_number()) {
    out += std::isfinite(value.as_double()) ? FormatDouble(value.as_double()) : "null";
  } else if (value.is_string()) {
    AppendJsonString(out, value.as_string());
  } else if (value.is_written()) {
    out += value.as_written();
  } else {
    const bool array = value.is_array();
    const std::size_t count = array ? value.as_array().size() : value.as_object().size();
    out.push_back(array ? '[' : '{');
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) out.push_back(',');
      AppendNewline(out, indent, level + 1);
      if (!array) {
        AppendJsonString(out, value.as_object()[i].first);
        out += indent < 0 ? ":" : ": ";
      }
      if (i % kMembersUnasked == kMembersUnasked - 1 && Interrupted()) return;
      AppendValue(out, array ? value.as_array()[i] : value.as_object()[i].second, indent,
                  level + 1);
    }
    if (count > 0) AppendNewline(out, indent, level);
    out.push_back(array ? ']' : '}');
  }
}

}  // namespace

Json Json::OfUnsigned(std::uint64_t value) {
  if (value <= static_cast<std::uint64_t>(INT64_MAX)) return Json(static_cast<std::int64_t>(value));
  Json big;
  big.value_ = Decimal{StrCat(value)};
  return big;
}

Json JsonOfNumber(std::string_view text, double value) {
  constexpr std::int64_t kPowerMax = 400;  // beyond this, doubles are 0 or infinity
  const Digits said = Significant(text);
  if (said == Significant(FormatDouble(value)) || std::abs(said.power) > kPowerMax)
    return Json(value);
  Json exact;
  exact.value_ = Json::Decimal{std::string(text)};
  return exact;
}

bool Json::is_big_int() const {
  std::uint64_t value = 0;
  return is_decimal() && ParseWhole(as_decimal(), value);
}

std::uint64_t Json::as_big_int() const {
  std::uint64_t value = 0;
  CHECK(ParseWhole(as_decimal(), value));
  return value;
}

double Json::as_double() const {
  if (is_int()) return static_cast<double>(as_int());
  if (!is_decimal()) return std::get<double>(value_);
  double value = 0;
  std::from_chars(as_decimal().data(), as_decimal().data() + as_decimal().size(), value);
  return value;
}

std::string_view Json::type_name() const {
  constexpr std::string_view kNames[] = {"null",  "boolean", "integer", "number", "string",
                                         "array", "object",  "number",  "written"};
  const bool whole = is_decimal() && as_decimal().find_first_of(".eE") == std::string::npos;
  return whole ? "integer" : kNames[value_.index()];
}

const Json* Json::FindRaw(std::string_view key) const {
  if (!is_object()) return nullptr;
  // The last of duplicate keys wins, as in Python and JavaScript.
  const Object& members = as_object();
  const auto found = std::find_if(members.rbegin(), members.rend(),
                                  [&](const Member& m) { return m.first == key; });
  return found == members.rend() ? nullptr : &found->second;
}

const Json* Json::Find(std::string_view key) const {
  const Json* value = FindRaw(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

void Json::Set(std::string_view key, Json value) {
  if (Json* old = FindRaw(key)) {
    *old = std::move(value);
  } else {
    object().emplace_back(std::string(key), std::move(value));
  }
}

Json Json::OfWritten(std::string text) {
  Json value;
  value.value_ = Written{std::move(text)};
  return value;
}

void Json::AppendTo(std::string& out) const { AppendValue(out, *this, -1, 0); }

std::string Json::Dump(int indent) const {
  std::string out;
  AppendValue(out, *this, indent, 0);
  return out;
}

namespace {

Result<Json> Parse(std::string_view text, Builder& builder) {
  // The library would take it for the end of the text and stop reading.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos)
    return InvalidArgument("invalid JSON at byte ", nul + 1, ": a NUL byte");
  if (!Library::sax_parse(text.begin(), text.end(), &builder)) {
    return InvalidArgument(builder.error().empty() ? "invalid JSON" : builder.error());
  }
  return builder.Take();
}

}  // namespace

Result<Json> ParseJson(std::string_view text, int depth_max) {
  Builder builder(depth_max);
  return Parse(text, builder);
}

Result<Json> ParseJsonOf(std::string_view text, std::size_t values_max) {
  constexpr int kDepthMax = 64;
  Builder builder(kDepthMax, values_max);
  auto parsed = Parse(text, builder);
  if (builder.too_many())
    return ResourceExhausted("the JSON has more than ", values_max, " values");
  return parsed;
}

void AppendJsonString(std::string& out, std::string_view text) {
  out.push_back('"');
  const std::string clean = ReplaceInvalidUtf8(text);
  for (const char c : clean) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (base::ByteOf(c) < 0x20) {
          char escape[8];
          std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(c));
          out += escape;
        } else {
          out.push_back(c);
        }
    }
  }
  out.push_back('"');
}

std::string FormatDouble(double value) {
  std::string text = StrCat(value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

}  // namespace thermocline::base
