#include "engine/grammar/json_numbers.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

namespace thermocline::grammar {
namespace {

constexpr std::int64_t kMultipleMax = 2000;

std::uint8_t Digit(int value) { return static_cast<std::uint8_t>('0' + value); }

// Numbers of the same length from `lo` to `hi`, both of its digits.
void AddDigits(int from, std::string_view lo, std::string_view hi, Nfa& nfa, int to) {
  if (lo.empty()) return nfa.Link(from, to);
  const auto byte = [](char c) { return static_cast<std::uint8_t>(c); };
  const std::string nines(lo.size() - 1, '9'), zeros(lo.size() - 1, '0');
  const auto behind = [&](int first, int last, std::string_view low, std::string_view high) {
    if (first > last) return;
    const int next = nfa.AddState();
    nfa.AddByte(from, static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(last), next);
    AddDigits(next, low, high, nfa, to);
  };
  if (lo[0] == hi[0]) return behind(byte(lo[0]), byte(lo[0]), lo.substr(1), hi.substr(1));
  int first = byte(lo[0]), last = byte(hi[0]);
  if (lo.substr(1) != zeros) behind(first, first, lo.substr(1), nines), ++first;
  if (hi.substr(1) != nines) behind(last, last, zeros, hi.substr(1)), --last;
  behind(first, last, zeros, nines);
}

// Whole numbers from `lo` to `hi`, 0 <= lo, without leading zeros; none if lo > hi.
void AddWhole(int from, std::int64_t lo, std::int64_t hi, Nfa& nfa, int to) {
  std::int64_t first = lo;
  while (first <= hi) {
    const std::string low = std::to_string(first);
    const std::string nines(low.size(), '9');
    const std::int64_t last = std::min(hi, static_cast<std::int64_t>(std::stoll(nines)));
    AddDigits(from, low, std::to_string(last), nfa, to);
    first = last + 1;
  }
}

std::int64_t Clamped(double value) {
  return static_cast<std::int64_t>(std::clamp(value, -static_cast<double>(kIntegerMax) - 1,
                                              static_cast<double>(kIntegerMax) + 1));
}

// Decimal digits whose number divides by `by`, without a sign.
Dfa Multiples(std::int64_t by) {
  Dfa out;
  out.states.resize(static_cast<std::size_t>(by) + 1);  // 0: no digit yet; 1 + remainder
  for (std::size_t state = 0; state < out.states.size(); ++state) {
    const std::int64_t rest = state == 0 ? 0 : static_cast<std::int64_t>(state) - 1;
    out.states[state].accepting = state != 0 && rest == 0;
    for (int digit = 0; digit < 10; ++digit)
      out.states[state].bytes.push_back(
          {Digit(digit), Digit(digit), static_cast<int>((rest * 10 + digit) % by) + 1});
  }
  return out;
}

// What is behind the digits before the point: nothing, or a point and digits, whose value compares
// with that of `digits` (without zeros at the end).
enum class Than { kNotLess, kMore, kNotMore, kLess };
Nfa Fraction(std::string_view digits, Than than) {
  const bool more = than == Than::kNotLess || than == Than::kMore;
  const bool same = than == Than::kNotLess || than == Than::kNotMore;
  Nfa nfa;
  const int free = nfa.AddState();
  nfa.AddByte(free, '0', '9', free);
  nfa.Link(free, Nfa::kFinal);
  if (digits.empty() ? same : !more) nfa.Link(Nfa::kStart, Nfa::kFinal);
  int tight = nfa.AddState();
  nfa.AddByte(Nfa::kStart, '.', '.', tight);
  bool first = true;
  for (const char digit : digits) {
    const auto at = static_cast<std::uint8_t>(digit);
    if (more && at < '9') nfa.AddByte(tight, static_cast<std::uint8_t>(at + 1), '9', free);
    if (!more && at > '0') nfa.AddByte(tight, '0', static_cast<std::uint8_t>(at - 1), free);
    if (!more && !first) nfa.Link(tight, Nfa::kFinal);  // what is left of the digits is not zero
    const int next = nfa.AddState();
    nfa.AddByte(tight, at, at, next);
    tight = next;
    first = false;
  }
  // All digits are the same so far.
  if (more) nfa.AddByte(tight, '1', '9', free);
  const int zeros = nfa.AddState();
  nfa.AddByte(tight, '0', '0', zeros);
  nfa.AddByte(zeros, '0', '0', zeros);
  if (more) nfa.AddByte(zeros, '1', '9', free);
  if (same) nfa.Link(zeros, Nfa::kFinal);
  if (same && !first) nfa.Link(tight, Nfa::kFinal);
  return nfa;
}

Nfa AnyFraction() {
  Nfa nfa;
  nfa.Link(Nfa::kStart, Nfa::kFinal);
  int at = nfa.AddState();
  nfa.AddByte(Nfa::kStart, '.', '.', at);
  for (int i = 0; i < kNumberDigits; ++i) {
    const int next = nfa.AddState();
    nfa.AddByte(at, '0', '9', next);
    nfa.Link(next, Nfa::kFinal);
    at = next;
  }
  return nfa;
}

struct Decimal {
  std::int64_t whole = 0;
  std::string fraction = {};  // without zeros at the end
  bool strict = false;
};

Decimal DecimalOf(double magnitude, bool strict) {
  char buffer[400];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), magnitude, std::chars_format::fixed);
  const std::string text(buffer, end.ptr);
  const std::size_t point = std::min(text.find('.'), text.size());
  Decimal out{.whole = Clamped(std::floor(magnitude)), .strict = strict};
  out.fraction = point < text.size() ? text.substr(point + 1) : "";
  while (!out.fraction.empty() && out.fraction.back() == '0') out.fraction.pop_back();
  return out;
}

// Magnitudes from `lo` to `hi`.
Status AddMagnitude(const Decimal& lo, const std::optional<Decimal>& hi, int from, Nfa& nfa, int to,
                    Budget& budget) {
  ASSIGN_OR_RETURN(const Dfa any, MakeDeterministic(AnyFraction(), budget, true));
  const auto fraction = [&](std::string_view digits, Than than) -> Result<Dfa> {
    ASSIGN_OR_RETURN(const Dfa compared, MakeDeterministic(Fraction(digits, than), budget, true));
    return Intersection(any, compared, budget);
  };
  const auto add = [&](std::int64_t first, std::int64_t last, const Dfa& behind) {
    if (first > last || IsEmpty(behind)) return;
    const int point = nfa.AddState();
    AddWhole(from, first, last, nfa, point);
    Insert(behind, point, nfa, to);
  };
  ASSIGN_OR_RETURN(Dfa low, fraction(lo.fraction, lo.strict ? Than::kMore : Than::kNotLess));
  if (!hi.has_value()) {
    add(lo.whole, lo.whole, low);
    add(lo.whole + 1, kIntegerMax, any);
    return OkStatus();
  }
  ASSIGN_OR_RETURN(const Dfa high,
                   fraction(hi->fraction, hi->strict ? Than::kLess : Than::kNotMore));
  if (lo.whole == hi->whole) {
    ASSIGN_OR_RETURN(const Dfa both, Intersection(low, high, budget));
    add(lo.whole, lo.whole, both);
    return OkStatus();
  }
  if (lo.whole > hi->whole) return OkStatus();
  add(lo.whole, lo.whole, low);
  add(lo.whole + 1, hi->whole - 1, any);
  if (hi->whole <= kIntegerMax) add(hi->whole, hi->whole, high);
  return OkStatus();
}

bool Contradicts(const NumberBounds& bounds) {
  if (!bounds.min.has_value() || !bounds.max.has_value()) return false;
  const NumberBound &min = *bounds.min, &max = *bounds.max;
  return min.value > max.value || (min.value == max.value && (min.strict || max.strict));
}

Status NoNumber() { return base::InvalidArgument("no number lies within these bounds"); }

// Digits between two states that also divide by bounds.multiple_of.
Status AddMultiples(std::int64_t lo, std::int64_t hi, std::int64_t by, int from, Nfa& nfa, int to,
                    Budget& budget) {
  if (by <= 1) {
    AddWhole(from, lo, hi, nfa, to);
    return OkStatus();
  }
  Nfa range;
  AddWhole(Nfa::kStart, lo, hi, range, Nfa::kFinal);
  ASSIGN_OR_RETURN(const Dfa within, MakeDeterministic(range, budget, true));
  ASSIGN_OR_RETURN(const Dfa both, Intersection(within, Multiples(by), budget));
  if (!IsEmpty(both)) Insert(both, from, nfa, to);
  return OkStatus();
}

}  // namespace

Status AddInteger(const NumberBounds& bounds, int from, Nfa& nfa, int to, Budget& budget) {
  if (Contradicts(bounds)) return NoNumber();
  if (bounds.multiple_of > kMultipleMax)
    return base::Unimplemented("multipleOf ", bounds.multiple_of, " is not supported; at most ",
                               kMultipleMax);
  std::int64_t lo = -kIntegerMax, hi = kIntegerMax;
  if (bounds.min.has_value()) {
    const double least = std::ceil(bounds.min->value);
    lo = std::max(lo, Clamped(least + (bounds.min->strict && least == bounds.min->value ? 1 : 0)));
  }
  if (bounds.max.has_value()) {
    const double most = std::floor(bounds.max->value);
    hi = std::min(hi, Clamped(most - (bounds.max->strict && most == bounds.max->value ? 1 : 0)));
  }
  if (lo > hi) return NoNumber();
  const std::int64_t by = bounds.multiple_of;
  if (lo < 0) {
    const int minus = nfa.AddState();
    nfa.AddByte(from, '-', '-', minus);
    RETURN_IF_ERROR(AddMultiples(std::max<std::int64_t>(1, -hi), -lo, by, minus, nfa, to, budget));
  }
  if (hi < 0) return OkStatus();
  return AddMultiples(std::max<std::int64_t>(lo, 0), hi, by, from, nfa, to, budget);
}

Status AddNumber(const NumberBounds& bounds, int from, Nfa& nfa, int to, Budget& budget) {
  if (bounds.multiple_of != 0) return AddInteger(bounds, from, nfa, to, budget);
  if (Contradicts(bounds)) return NoNumber();
  const auto &min = bounds.min, &max = bounds.max;
  const int whole = nfa.AddState();
  nfa.Link(whole, to);
  if (!min.has_value() || min->value < 0) {
    const int minus = nfa.AddState();
    nfa.AddByte(from, '-', '-', minus);
    const bool below = max.has_value() && max->value < 0;
    const Decimal lo = below ? DecimalOf(-max->value, max->strict) : DecimalOf(0, true);
    const auto hi =
        min.has_value() ? std::optional(DecimalOf(-min->value, min->strict)) : std::nullopt;
    RETURN_IF_ERROR(AddMagnitude(lo, hi, minus, nfa, whole, budget));
  }
  if (max.has_value() && max->value < 0) return OkStatus();
  const bool above = min.has_value() && min->value >= 0;
  const auto hi =
      max.has_value() ? std::optional(DecimalOf(max->value, max->strict)) : std::nullopt;
  RETURN_IF_ERROR(AddMagnitude(above ? DecimalOf(min->value, min->strict) : DecimalOf(0, false), hi,
                               from, nfa, whole, budget));
  if (min.has_value() || max.has_value()) return OkStatus();
  // An exponent, only where any number may come.
  const int e = nfa.AddState(), sign = nfa.AddState(), one = nfa.AddState();
  nfa.AddByte(whole, 'e', 'e', e);
  nfa.AddByte(whole, 'E', 'E', e);
  nfa.AddByte(e, '+', '+', sign);
  nfa.AddByte(e, '-', '-', sign);
  nfa.Link(e, sign);
  nfa.AddByte(sign, '0', '9', one);
  nfa.AddByte(one, '0', '9', to);
  nfa.Link(one, to);
  return OkStatus();
}

}  // namespace thermocline::grammar
