// Checked lookups in the JSON header of a file with a header and arrays (side-cars, bundles).
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/json.h"

namespace thermocline::base {

// The arrays of a file, after its header: each at a multiple of kArrayAlignment from `begin`.
inline constexpr std::uint64_t kArrayAlignment = 64;
struct ArrayArea {
  const File& file;
  std::uint64_t begin = 0, end = 0;  // bytes from the start of the file
};

inline constexpr std::uint64_t ArrayAligned(std::uint64_t bytes) {
  return (bytes + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
}

// Members of one object. The first failure, InvalidArgument unless reading failed, stays in
// `status`; later lookups return zero. Borrows all its arguments.
class HeaderFields {
 public:
  // `where` is prepended to messages ("FILE: layer 3: "), `advice` appended.
  HeaderFields(const Json& json, std::string where, const char* advice, Status& status)
      : json_(json), where_(std::move(where)), advice_(advice), status_(status) {}

  const Json* Optional(const char* key) const { return json_.Find(key); }
  // The members of an object in this one; if it is missing, those of an empty object.
  HeaderFields Object(const char* key);

  std::int64_t Int(const char* key, std::int64_t min, std::int64_t max);
  int Int32(const char* key, int min, int max) { return static_cast<int>(Int(key, min, max)); }
  double Number(const char* key);
  float Float(const char* key);
  bool Bool(const char* key);
  std::string Text(const char* key);
  // An array that must have `count` elements.
  const Json::Array& List(const char* key, std::size_t count);

  // An array of the file, {"at", "count"}: `count` elements. Allocates only as much as the file
  // holds.
  template <typename T>
  std::vector<T> Array(const char* key, std::int64_t count, const ArrayArea& area) {
    const auto bytes = count * sizeof(T);
    const std::uint64_t at = FindArray(key, count, bytes, area);
    if (!status_.ok()) return {};
    std::vector<T> out(count);
    const Status read = area.file.ReadAt(area.begin + at, std::as_writable_bytes(std::span(out)));
    if (!read.ok()) status_ = read;
    return out;
  }

  void Fail(const char* key, std::string_view what);

 private:
  std::uint64_t FindArray(const char* key, std::int64_t count, std::uint64_t bytes,
                          const ArrayArea& area);

  const Json& json_;
  std::string where_;
  const char* advice_;
  Status& status_;
};

}  // namespace thermocline::base
