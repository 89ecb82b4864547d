// Reads little-endian values from a file's header; every step is checked against what is left.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/status.h"

namespace thermocline::model {

static_assert(std::endian::native == std::endian::little, "model files are read as stored");

// Thread-compatible. After a failed read the position stays.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : size_(bytes.size()), window_(bytes) {}
  // Reads the file piece by piece; not mapped, since what is cut off a mapped file while it is read
  // ends the process. Requires: the file lives longer.
  explicit ByteReader(const base::File& file) : file_(&file), size_(file.size()) {}

  std::uint64_t position() const { return position_; }
  std::uint64_t remaining() const { return size_ - position_; }
  // The error of the last read of the file, which it names; OK if that gave all.
  const Status& read_error() const { return read_error_; }

  // DataLoss naming `what` and the position when the bytes end before it does; errors as
  // File::ReadAt.
  template <typename T>
  Result<T> Read(std::string_view what) {
    T value;
    RETURN_IF_ERROR(Fill(what, std::as_writable_bytes(std::span(&value, 1))));
    return value;
  }

  Result<std::string> ReadString(std::string_view what, std::uint64_t length) {
    if (length > remaining()) return Truncated(what, length);
    std::string text(length, '\0');
    RETURN_IF_ERROR(Fill(what, std::as_writable_bytes(std::span(text))));
    return text;
  }

 private:
  static constexpr std::uint64_t kWindowBytes = 256 << 10;

  Status Fill(std::string_view what, std::span<std::byte> out) {
    if (out.size() > remaining()) return Truncated(what, out.size());
    if (position_ + out.size() > window_begin_ + window_.size()) {
      if (out.size() > kWindowBytes) {
        RETURN_IF_ERROR(ReadFile(out));
        position_ += out.size();
        return OkStatus();
      }
      RETURN_IF_ERROR(MoveWindow());
    }
    if (!out.empty())
      std::memcpy(out.data(), window_.data() + (position_ - window_begin_), out.size());
    position_ += out.size();
    return OkStatus();
  }
  // To what comes next.
  Status MoveWindow() {
    buffer_.resize(std::min(kWindowBytes, remaining()));
    window_ = {};
    RETURN_IF_ERROR(ReadFile(buffer_));
    window_ = buffer_;
    window_begin_ = position_;
    return OkStatus();
  }
  Status ReadFile(std::span<std::byte> out) {
    read_error_ = file_->ReadAt(position_, out);
    return read_error_;
  }
  Status Truncated(std::string_view what, std::uint64_t wanted) const {
    return base::DataLoss(what, " at byte ", position_, " needs ", wanted, " bytes, ", remaining(),
                          " are left");
  }

  const base::File* file_ = nullptr;
  std::uint64_t size_, position_ = 0;
  std::span<const std::byte> window_;
  std::uint64_t window_begin_ = 0;  // the window's position
  std::vector<std::byte> buffer_;
  Status read_error_;
};

}  // namespace thermocline::model
