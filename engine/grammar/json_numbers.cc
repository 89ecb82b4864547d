#include "engine/grammar/json_numbers.h"

#include <algorithm>
#include <string>

#include "engine/base/index.h"

namespace thermocline::grammar {
namespace {

constexpr std::int64_t kMultipleMax = 2000;

std::uint8_t Digit(int value) { return static_cast<std::uint8_t>('0' + value); }

// Numbers from `lo` to `hi`, both inclusive and of the same number of digits.
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

// Whole numbers from `lo` to `hi` without a sign and without leading zeros; none if lo > hi.
// Without `hi`: up to kWholeDigits digits, or one digit more than `lo` has.
void AddWhole(int from, const std::string& lo, const std::optional<std::string>& hi, Nfa& nfa,
              int to) {
  const std::size_t most =
      hi.has_value() ? hi->size() : std::max<std::size_t>(kWholeDigits, lo.size() + 1);
  for (std::size_t digits = lo.size(); digits <= most; ++digits) {
    const std::string low = digits == lo.size() ? lo : "1" + std::string(digits - 1, '0');
    const std::string high =
        hi.has_value() && digits == hi->size() ? *hi : std::string(digits, '9');
    if (low <= high) AddDigits(from, low, high, nfa, to);
  }
}

// Digits of unsigned multiples of `by`.
Dfa Multiples(std::int64_t by) {
  Dfa out;
  out.states.resize(by + 1U);  // 0: no digit yet; 1 + remainder
  for (int state = 0; state < base::IntSize(out.states); ++state) {
    const std::int64_t rest = state == 0 ? 0 : state - 1;
    out.states[state].accepting = state != 0 && rest == 0;
    for (int digit = 0; digit < 10; ++digit)
      out.states[state].bytes.push_back(
          {Digit(digit), Digit(digit), static_cast<int>((rest * 10 + digit) % by) + 1});
  }
  return out;
}

// The text after the digits before the point: empty, or a point and digits, whose value compares as
// `than` with that of `digits` (without trailing zeros).
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
    const std::uint8_t at = digit;
    if (more && at < '9') nfa.AddByte(tight, static_cast<std::uint8_t>(at + 1), '9', free);
    if (!more && at > '0') nfa.AddByte(tight, '0', static_cast<std::uint8_t>(at - 1), free);
    if (!more && !first) nfa.Link(tight, Nfa::kFinal);  // the remaining digits are not zero
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
  for (int i = 0; i < kFractionDigits; ++i) {
    const int next = nfa.AddState();
    nfa.AddByte(at, '0', '9', next);
    nfa.Link(next, Nfa::kFinal);
    at = next;
  }
  return nfa;
}

// A bound on magnitudes.
struct Limit {
  Decimal value = {};  // its sign is ignored
  bool strict = false;
};

// Magnitudes from `lo` to `hi`.
Status AddMagnitude(const Limit& lo, const std::optional<Limit>& hi, int from, Nfa& nfa, int to,
                    Budget& budget) {
  ASSIGN_OR_RETURN(const Dfa any, MakeDeterministic(AnyFraction(), budget, true));
  const auto fraction = [&](std::string_view digits, Than than) -> Result<Dfa> {
    ASSIGN_OR_RETURN(const Dfa compared, MakeDeterministic(Fraction(digits, than), budget, true));
    return Intersection(any, compared, budget);
  };
  const auto add = [&](const std::string& first, const std::optional<std::string>& last,
                       const Dfa& behind) {
    if (IsEmpty(behind) || (last.has_value() && CompareWhole(first, *last) > 0)) return;
    const int point = nfa.AddState();
    AddWhole(from, first, last, nfa, point);
    Insert(behind, point, nfa, to);
  };
  const std::string& low_whole = lo.value.whole;
  ASSIGN_OR_RETURN(Dfa low, fraction(lo.value.fraction, lo.strict ? Than::kMore : Than::kNotLess));
  if (!hi.has_value()) {
    add(low_whole, low_whole, low);
    add(OneMore(low_whole), std::nullopt, any);
    return OkStatus();
  }
  const std::string& high_whole = hi->value.whole;
  ASSIGN_OR_RETURN(const Dfa high,
                   fraction(hi->value.fraction, hi->strict ? Than::kLess : Than::kNotMore));
  if (low_whole == high_whole) {
    ASSIGN_OR_RETURN(const Dfa both, Intersection(low, high, budget));
    add(low_whole, low_whole, both);
    return OkStatus();
  }
  if (CompareWhole(low_whole, high_whole) > 0) return OkStatus();
  add(low_whole, low_whole, low);
  add(OneMore(low_whole), OneLess(high_whole), any);
  add(high_whole, high_whole, high);
  return OkStatus();
}

bool Contradicts(const NumberBounds& bounds) {
  if (!bounds.min.has_value() || !bounds.max.has_value()) return false;
  const NumberBound &min = *bounds.min, &max = *bounds.max;
  const int compared = Compare(min.value, max.value);
  return compared > 0 || (compared == 0 && (min.strict || max.strict));
}

Status NoNumber() { return base::InvalidArgument("no number lies within these bounds"); }

// Digits from `lo` to `hi` that are also multiples of `by`.
Status AddMultiples(const std::string& lo, const std::optional<std::string>& hi, std::int64_t by,
                    int from, Nfa& nfa, int to, Budget& budget) {
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

// The least whole magnitude that is not below `bound`'s.
std::string WholeFrom(const NumberBound& bound) {
  const bool up = !bound.value.is_whole() || bound.strict;
  return up ? OneMore(bound.value.whole) : bound.value.whole;
}
// The greatest that is not above it; nullopt: there is none.
std::optional<std::string> WholeTo(const NumberBound& bound) {
  const bool down = bound.value.is_whole() && bound.strict;
  if (down && bound.value.whole == "0") return std::nullopt;
  return down ? OneLess(bound.value.whole) : bound.value.whole;
}

// Whole magnitudes from `lo` to `hi`.
struct WholeRange {
  std::string lo;
  std::optional<std::string> hi = {};
  bool none = false;

  bool empty() const { return none || (hi.has_value() && CompareWhole(lo, *hi) > 0); }
};

WholeRange RangeOf(std::string lo, const std::optional<NumberBound>& to) {
  WholeRange out{.lo = std::move(lo)};
  if (!to.has_value()) return out;
  out.hi = WholeTo(*to);
  out.none = !out.hi.has_value();
  return out;
}

// The ranges of magnitudes of numbers from zero up, and of negative numbers.
WholeRange NotNegative(const NumberBounds& b) {
  if (b.max.has_value() && b.max->value.negative) return {.lo = "0", .none = true};
  const bool above = b.min.has_value() && !b.min->value.negative;
  return RangeOf(above ? WholeFrom(*b.min) : "0", b.max);
}
WholeRange Negative(const NumberBounds& b) {
  if (b.min.has_value() && !b.min->value.negative) return {.lo = "1", .none = true};
  const bool below = b.max.has_value() && b.max->value.negative;
  WholeRange out = RangeOf(below ? WholeFrom(*b.max) : "1", b.min);
  if (out.lo == "0") out.lo = "1";  // -0 is 0
  return out;
}

Limit LimitOf(const NumberBound& bound) { return {.value = bound.value, .strict = bound.strict}; }

// "e", a sign and up to `digits` digits, or nothing.
void AddExponent(int digits, int from, Nfa& nfa, int to) {
  const int e = nfa.AddState(), sign = nfa.AddState();
  nfa.AddByte(from, 'e', 'e', e);
  nfa.AddByte(from, 'E', 'E', e);
  nfa.AddByte(e, '+', '+', sign);
  nfa.AddByte(e, '-', '-', sign);
  nfa.Link(e, sign);
  int at = sign;
  for (int i = 0; i < digits; ++i) {
    const int next = nfa.AddState();
    nfa.AddByte(at, '0', '9', next);
    nfa.Link(next, to);
    at = next;
  }
  nfa.Link(from, to);
}

bool IsZero(const NumberBound& bound) { return bound.value.whole == "0" && bound.value.is_whole(); }

}  // namespace

Status AddInteger(const NumberBounds& bounds, int from, Nfa& nfa, int to, Budget& budget) {
  if (Contradicts(bounds)) return NoNumber();
  if (bounds.multiple_of > kMultipleMax)
    return base::Unimplemented("multipleOf ", bounds.multiple_of, " is not supported; at most ",
                               kMultipleMax);
  const WholeRange above = NotNegative(bounds), below = Negative(bounds);
  if (above.empty() && below.empty()) return NoNumber();
  const std::int64_t by = bounds.multiple_of;
  if (!below.empty()) {
    const int minus = nfa.AddState();
    nfa.AddByte(from, '-', '-', minus);
    RETURN_IF_ERROR(AddMultiples(below.lo, below.hi, by, minus, nfa, to, budget));
  }
  if (above.empty()) return OkStatus();
  return AddMultiples(above.lo, above.hi, by, from, nfa, to, budget);
}

Status AddNumber(const NumberBounds& bounds, int from, Nfa& nfa, int to, Budget& budget) {
  if (bounds.multiple_of != 0) return AddInteger(bounds, from, nfa, to, budget);
  if (Contradicts(bounds)) return NoNumber();
  const auto &min = bounds.min, &max = bounds.max;
  // A bound of zero constrains only the sign, which an exponent does not change.
  const bool sign_alone = (!min.has_value() || IsZero(*min)) && (!max.has_value() || IsZero(*max));
  const bool exponent = sign_alone && !(min.has_value() && max.has_value());
  const int whole = nfa.AddState();
  if (exponent) {
    // The exponent has two digits if a number that readers round to zero would be outside the
    // bounds.
    const bool strict = (min.has_value() && min->strict) || (max.has_value() && max->strict);
    AddExponent(strict ? 2 : 3, whole, nfa, to);
  } else {
    nfa.Link(whole, to);
  }
  if (!min.has_value() || min->value.negative) {
    const int minus = nfa.AddState();
    nfa.AddByte(from, '-', '-', minus);
    const bool below = max.has_value() && max->value.negative;
    const bool below_zero = max.has_value() && max->strict && IsZero(*max);
    const Limit lo = below ? LimitOf(*max) : Limit{.strict = below_zero};  // otherwise -0 is 0
    const auto hi = min.has_value() ? std::optional(LimitOf(*min)) : std::nullopt;
    RETURN_IF_ERROR(AddMagnitude(lo, hi, minus, nfa, whole, budget));
  }
  if (max.has_value() && max->value.negative) return OkStatus();
  const bool above = min.has_value() && !min->value.negative;
  const auto hi = max.has_value() ? std::optional(LimitOf(*max)) : std::nullopt;
  return AddMagnitude(above ? LimitOf(*min) : Limit{}, hi, from, nfa, whole, budget);
}

}  // namespace thermocline::grammar
