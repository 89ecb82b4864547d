// Anonymous memory on huge pages: on 4 KiB pages, page walks rather than DRAM limit reads of large
// weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "engine/base/status.h"

namespace thermocline::base {

// Owns one zeroed mapping, aligned to 2 MiB. Movable; const reads are thread-safe.
class HugeBuffer {
 public:
  HugeBuffer() = default;
  // ResourceExhausted if the system refuses the bytes.
  static Result<HugeBuffer> Allocate(std::size_t bytes);
  HugeBuffer(HugeBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(other.bytes_),
        mapping_(other.mapping_),
        mapping_bytes_(other.mapping_bytes_),
        given_back_(other.given_back_),
        huge_(other.huge_) {}
  HugeBuffer& operator=(HugeBuffer&& other) noexcept;
  ~HugeBuffer();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }
  // Returns the memory of `bytes` at `begin`, a part of the buffer, to the system; its contents are
  // lost. Only whole pages: a page shared with other parts stays. kHuge: only whole huge pages,
  // because splitting one makes the rest of it slow. Requires: no part is given back twice.
  enum class Pages { kSmall, kHuge };
  void GiveBack(const void* begin, std::size_t bytes, Pages pages);
  // Bytes that have not been given back.
  std::size_t held() const { return bytes_ - given_back_; }
  // Bytes that all buffers of the process hold, and their maximum since ResetMost: the peak while
  // loading.
  static std::size_t HeldByAll();
  static std::size_t MostHeldByAll();
  static void ResetMost();
  // True if the system took the advice; false means 4 KiB pages.
  bool huge() const { return huge_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  void* mapping_ = nullptr;
  std::size_t mapping_bytes_ = 0;
  std::size_t given_back_ = 0;
  bool huge_ = false;
};

}  // namespace thermocline::base
