// The memory that a kernel may access: allocations of the emulated device, its shared and local
// memory.
//
// Generic addresses of shared and local memory are in separate windows, so that an address used in
// the wrong space, or a null pointer, is detected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace ptx {

inline constexpr std::uint64_t kSharedWindow = std::uint64_t{1} << 60,
                               kLocalWindow = std::uint64_t{1} << 61,
                               kWindowBytes = std::uint64_t{1} << 32;

// A fault of a kernel, as compute-sanitizer would report it. Ends the launch.
struct Finding : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// One allocation as a launch sees it.
struct Allocation {
  std::uint64_t begin = 0, end = 0;
  std::uint8_t* written = nullptr;  // a flag per byte, 0 = never written; nullptr: not tracked
};

// All allocations, ordered by address.
class Allocations {
 public:
  explicit Allocations(std::vector<Allocation> all) : all_(std::move(all)) {}
  // The allocation that contains [at, at + bytes); nullptr if there is none.
  const Allocation* Find(std::uint64_t at, std::uint64_t bytes) const;

 private:
  std::vector<Allocation> all_;
};

}  // namespace ptx
