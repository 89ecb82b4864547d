// Typed, range-checked access to the fields of a request body. An explicit null means absent.
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/status.h"

namespace thermocline::protocol {

// Which fields were looked for, and the bounds of those that are numbers: what a test compares the
// API's description with.
struct FieldBounds {
  std::optional<double> min, max;
};
using FieldLog = std::map<std::string, FieldBounds, std::less<>>;

inline constexpr std::size_t kIgnoredFieldsMax = 32;     // names that one request may have noted
inline constexpr std::size_t kIgnoredNameBytesMax = 64;  // of each

// Collects the first error; getters after it return their defaults. Thread-compatible.
class Fields {
 public:
  explicit Fields(const Json& body, FieldLog* log = nullptr) : body_(body), log_(log) {}

  bool ok() const { return status_.ok(); }
  // InvalidArgument or Unimplemented, with the field.
  const Status& status() const { return status_; }

  const Json* Find(std::string_view name) const {
    seen_.emplace(name);
    if (log_ != nullptr) log_->try_emplace(std::string(name));
    return body_.Find(name);
  }
  // Decides about the members of the body that were not looked for and are not null. One of
  // kClientFields with a value that changes nothing is passed over, with another value it is
  // refused. A name of five letters or more within two edits of a field that the route knows and
  // the request lacks is refused. All others are noted in ignored(); with `strict` they are
  // refused. Requires: every field that the route knows has been looked for.
  // With `near_misses` false such a name is like any other.
  void CheckUnknown(bool strict, bool near_misses = true);
  // The unknown fields that the request has, at most kIgnoredFieldsMax of them.
  const std::vector<std::string>& ignored() const { return ignored_; }
  // Notes an unknown member that CheckUnknown does not see, because it is below the top level.
  void Ignore(std::string name);
  // The same of every member of `object`, the field `name`, that is not among `known`. One that is
  // nearly a known member that the object lacks is refused, as CheckUnknown does.
  void IgnoreOthers(std::string_view name, const Json& object,
                    std::initializer_list<std::string_view> known);
  // Notes a part of the request that is left out and that is no reason to refuse it, even if
  // unknown fields are.
  void LeaveOut(std::string name);
  // Takes the first error and the ignored fields of `inner`, which read the object `name`.
  void Adopt(std::string_view name, const Fields& inner);
  // 1 and 1.0 are both whole numbers.
  std::int64_t Int(std::string_view name, std::int64_t absent, std::int64_t min, std::int64_t max);
  // A whole number in [-2^63, 2^64 - 1] as 64 bits: a negative one modulo 2^64.
  std::uint64_t Bits64(std::string_view name, std::uint64_t absent);
  double Double(std::string_view name, double absent, double min, double max);
  bool Bool(std::string_view name, bool absent);
  std::string String(std::string_view name, std::string absent);
  // Whole numbers within [0, INT32_MAX], at most `count_max` of them; nothing if the field is
  // absent.
  std::optional<std::vector<int>> Ints(std::string_view name, std::size_t count_max);
  // One string or a list of them, at most `count_max` of 1 to `bytes_max` bytes. "" is an empty
  // list.
  std::optional<std::vector<std::string>> Strings(std::string_view name, std::size_t count_max,
                                                  std::size_t bytes_max);
  // Stop texts: Strings within the limits of requests, without the empty ones, which stop nothing.
  std::vector<std::string> Stops(std::string_view name);
  // Refuses the request for a field's value, which is wrong, or which is not supported.
  void Fail(std::string_view name, const std::string& message);
  void FailUnsupported(std::string_view name, const std::string& message);

 private:
  std::optional<std::vector<std::string>> ReadStrings(std::string_view name, std::size_t count_max,
                                                      std::size_t bytes_max, bool some_empty);
  const Json* FindNumber(std::string_view name, double min, double max) const;
  void FailWith(std::string_view name, const Status& status);
  void CheckUnknownField(const std::string& name, const Json& value, bool near_misses);
  // A field that the route knows and the request lacks, whose name is nearly `name`; "" if none is.
  std::string_view Nearest(std::string_view name) const;
  void NotWhole(std::string_view name, const Json& value, const std::string& range);

  const Json& body_;
  FieldLog* const log_;
  mutable std::set<std::string, std::less<>> seen_;
  std::vector<std::string> ignored_;
  int compared_ = 0;                  // names, for near misses
  std::vector<std::string> unknown_;  // The first of them that `strict` refuses, if there is one.
  Status status_;
};

// The body of a request. InvalidArgument: it is no JSON, or no object.
Result<Json> ParseBody(std::string_view body);

// Exact 32-bit ids of a JSON list; nothing if it is none.
std::optional<std::vector<int>> ToInts(const Json& list);

}  // namespace thermocline::protocol
