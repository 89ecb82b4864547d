// Counts the bytes of all existing compiled grammars, cached or used by an answer, so that they
// stay within a limit.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace thermocline::grammar {

// A share of the total while it lives. The total is thread-safe.
class HeldBytes {
 public:
  using Total = std::atomic<std::int64_t>;

  HeldBytes() = default;
  HeldBytes(std::shared_ptr<Total> total, std::size_t bytes)
      : total_(std::move(total)), bytes_(bytes) {
    Add(bytes_);
  }
  HeldBytes(HeldBytes&& other) noexcept
      : total_(std::move(other.total_)), bytes_(std::exchange(other.bytes_, 0)) {}
  HeldBytes& operator=(HeldBytes&& other) noexcept {
    std::swap(total_, other.total_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~HeldBytes() { Add(-static_cast<std::int64_t>(bytes_)); }

  std::size_t bytes() const { return bytes_; }
  // Releases the part above `bytes`.
  void ShrinkTo(std::size_t bytes) {
    if (bytes >= bytes_) return;
    Add(-static_cast<std::int64_t>(bytes_ - bytes));
    bytes_ = bytes;
  }

 private:
  void Add(std::int64_t bytes) {
    if (total_ != nullptr) *total_ += bytes;
  }

  std::shared_ptr<Total> total_;
  std::size_t bytes_ = 0;
};

}  // namespace thermocline::grammar
