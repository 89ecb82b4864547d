// Reads little-endian values from a file's header; every read is checked against the bytes left.
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

// Thread-compatible. A failed read leaves the position unchanged.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : size_(bytes.size()), window_(bytes) {}
  // Reads the file piece by piece. It is not mapped, since truncating a mapped file during a read
  // kills the process. Requires: the file outlives the reader.
  explicit ByteReader(const base::File& file) : file_(&file), size_(file.size()) {}

  std::uint64_t position() const { return position_; }
  std::uint64_t remaining() const { return size_ - position_; }
  // The error of the last read of the file, which it names; OK if that read was complete.
  const Status& read_error() const { return read_error_; }

  // DataLoss with the value's name and the position if too few bytes are left; errors as
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
  // Reads the next window of the file.
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
