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

// The fields that were read, and the limits of numeric ones. A test compares the API's description
// with it.
struct FieldBounds {
  std::optional<double> min, max;
};
using FieldLog = std::map<std::string, FieldBounds, std::less<>>;

inline constexpr std::size_t kIgnoredFieldsMax = 32;     // unknown names reported per request
inline constexpr std::size_t kIgnoredNameBytesMax = 64;  // of each name

// Keeps the first error; later getters return their defaults. Thread-compatible.
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
  // Checks the members of the body that were not read and are not null. One of kClientFields is
  // skipped if its value is harmless, and rejected otherwise. A name of five letters or more,
  // within two edits of a field that the route knows and the request lacks, is rejected, unless
  // `near_misses` is false. All others are added to ignored() or, with `strict`, rejected.
  // Requires: every field that the route knows has been read.
  void CheckUnknown(bool strict, bool near_misses = true);
  // The request's unknown fields, at most kIgnoredFieldsMax.
  const std::vector<std::string>& ignored() const { return ignored_; }
  // Reports an unknown member below the top level, which CheckUnknown does not see.
  void Ignore(std::string name);
  // Reports every member of `object`, the field `name`, that is not in `known`. A near miss of a
  // known member that the object lacks is rejected, as in CheckUnknown.
  void IgnoreOthers(std::string_view name, const Json& object,
                    std::initializer_list<std::string_view> known);
  // Reports a part of the request that is dropped. Unlike unknown fields, it never rejects the
  // request.
  void LeaveOut(std::string name);
  // Takes over the first error and the ignored fields of `inner`, which read the object `name`.
  void Adopt(std::string_view name, const Fields& inner);
  // Accepts 1 and 1.0 as integers.
  std::int64_t Int(std::string_view name, std::int64_t absent, std::int64_t min, std::int64_t max);
  int Int32(std::string_view name, int absent, int min, int max) {
    return static_cast<int>(Int(name, absent, min, max));
  }
  // An integer in [-2^63, 2^64 - 1] as 64 bits: negative ones modulo 2^64.
  std::uint64_t Bits64(std::string_view name, std::uint64_t absent);
  double Double(std::string_view name, double absent, double min, double max);
  bool Bool(std::string_view name, bool absent);
  std::string String(std::string_view name, std::string absent);
  // Integers within [0, INT32_MAX], at most `count_max`; nullopt if the field is absent.
  std::optional<std::vector<int>> Ints(std::string_view name, std::size_t count_max);
  // A string or a list of strings, at most `count_max` of 1 to `bytes_max` bytes. "" is an empty
  // list.
  std::optional<std::vector<std::string>> Strings(std::string_view name, std::size_t count_max,
                                                  std::size_t bytes_max);
  // Stop texts: Strings within the limits of requests, without empty ones, which would stop
  // nothing.
  std::vector<std::string> Stops(std::string_view name);
  // Rejects the request because a field's value is wrong or not supported.
  void Fail(std::string_view name, const std::string& message);
  void FailUnsupported(std::string_view name, const std::string& message);

 private:
  std::optional<std::vector<std::string>> ReadStrings(std::string_view name, std::size_t count_max,
                                                      std::size_t bytes_max, bool some_empty);
  const Json* FindNumber(std::string_view name, double min, double max) const;
  void FailWith(std::string_view name, const Status& status);
  void CheckUnknownField(const std::string& name, const Json& value, bool near_misses);
  // The field that the route knows, the request lacks, and that `name` is a near miss of; "" if
  // none.
  std::string_view Nearest(std::string_view name) const;
  void NotWhole(std::string_view name, const Json& value, const std::string& range);

  const Json& body_;
  FieldLog* const log_;
  mutable std::set<std::string, std::less<>> seen_;
  std::vector<std::string> ignored_;
  int compared_ = 0;                  // names compared for near misses
  std::vector<std::string> unknown_;  // the first one that `strict` rejects
  Status status_;
};

// The body of a request. InvalidArgument: it is not JSON, or not an object.
Result<Json> ParseBody(std::string_view body);

// Exact 32-bit ids from a JSON list; nullopt if it is not one.
std::optional<std::vector<int>> ToInts(const Json& list);

}  // namespace thermocline::protocol
