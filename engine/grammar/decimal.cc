#include "engine/grammar/decimal.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "engine/base/strings.h"

namespace thermocline::grammar {
namespace {

// No text that can be generated tells larger exponents from these.
std::ptrdiff_t ExponentOf(std::string_view text) {
  constexpr std::ptrdiff_t kMost = 100'000;
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const auto value = base::ParseNumber<std::ptrdiff_t>(text);
  const std::ptrdiff_t size = value.has_value() ? std::min(*value, kMost) : kMost;
  return negative ? -size : size;
}

// "1.25e3" -> "1250."
std::string WithoutExponent(const std::string& text) {
  const std::size_t mark = text.find_first_of("eE");
  if (mark == std::string::npos) return text;
  const bool negative = text[0] == '-';
  std::string digits = text.substr(negative ? 1 : 0, mark - (negative ? 1 : 0));
  std::ptrdiff_t point = std::min(digits.find('.'), digits.size());
  std::erase(digits, '.');
  point += ExponentOf(std::string_view(text).substr(mark + 1));
  if (point < 0) digits.insert(0, static_cast<std::size_t>(-point), '0');
  point = std::max<std::ptrdiff_t>(point, 0);
  if (static_cast<std::size_t>(point) > digits.size()) digits.append(point - digits.size(), '0');
  digits.insert(static_cast<std::size_t>(point), ".");
  return (negative ? "-" : "") + digits;
}

// The digits of `number` without an exponent.
std::string Digits(const Json& number) {
  if (number.is_int()) return number.Dump();
  if (number.is_decimal()) return WithoutExponent(number.as_decimal());
  std::array<char, 800> buffer{};  // of the smallest double: 1,075 digits need 767 significant ones
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number.as_double(),
                                 std::chars_format::fixed);
  return std::string(buffer.data(), end.ptr);
}

}  // namespace

Decimal DecimalOf(const Json& number) {
  std::string digits = Digits(number);
  Decimal out;
  out.negative = digits.starts_with('-');
  if (out.negative) digits.erase(0, 1);
  const std::size_t point = std::min(digits.find('.'), digits.size());
  out.whole = digits.substr(0, point);
  if (point < digits.size()) out.fraction = digits.substr(point + 1);
  while (out.fraction.ends_with('0')) out.fraction.pop_back();
  while (out.whole.size() > 1 && out.whole[0] == '0') out.whole.erase(0, 1);
  if (out.whole.empty()) out.whole = "0";
  if (out.whole == "0" && out.fraction.empty()) out.negative = false;
  return out;
}

int CompareWhole(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  return a.compare(b);
}

int Compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  const int whole = CompareWhole(a.whole, b.whole);
  const int magnitude = whole != 0 ? whole : a.fraction.compare(b.fraction);
  return a.negative ? -magnitude : magnitude;
}

std::string OneMore(std::string whole) {
  for (std::size_t at = whole.size(); at-- > 0;) {
    if (whole[at] != '9') {
      ++whole[at];
      return whole;
    }
    whole[at] = '0';
  }
  return "1" + whole;
}

std::string OneLess(std::string whole) {
  for (std::size_t at = whole.size(); at-- > 0;) {
    if (whole[at] != '0') {
      --whole[at];
      break;
    }
    whole[at] = '9';
  }
  while (whole.size() > 1 && whole[0] == '0') whole.erase(0, 1);
  return whole;
}

}  // namespace thermocline::grammar
