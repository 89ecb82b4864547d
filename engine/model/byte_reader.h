// Reads little-endian values from a file's header; every step is checked against what is left.
#pragma once

#include <cstring>
#include <span>
#include <string>

#include "engine/base/status.h"

namespace thermocline::model {

static_assert(std::endian::native == std::endian::little, "model files are read as stored");

// Thread-compatible. After a failed read the position stays.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::size_t position() const { return position_; }
  std::size_t remaining() const { return bytes_.size() - position_; }

  // DataLoss naming `what` and the position when the bytes end before it does.
  template <typename T>
  Result<T> Read(std::string_view what) {
    if (remaining() < sizeof(T)) return Truncated(what, sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  Result<std::string> ReadString(std::string_view what, std::uint64_t length) {
    if (length > remaining()) return Truncated(what, length);
    std::string text(reinterpret_cast<const char*>(bytes_.data() + position_), length);
    position_ += length;
    return text;
  }

 private:
  Status Truncated(std::string_view what, std::uint64_t wanted) const {
    return base::DataLoss(what, " at byte ", position_, " needs ", wanted, " bytes, ", remaining(),
                          " are left");
  }

  std::span<const std::byte> bytes_;
  std::size_t position_ = 0;
};

}  // namespace thermocline::model
