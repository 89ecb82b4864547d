// What a kernel may touch: allocations of the emulated device, its shared and local memory.
//
// Generic addresses of shared and local memory lie in windows of their own, so that one that is
// used in the wrong space, or a null pointer, is found.
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
  std::uint8_t* written = nullptr;  // a byte for each byte, 0: never written; null: not tracked
};

// All that there are, in order of addresses.
class Allocations {
 public:
  explicit Allocations(std::vector<Allocation> all) : all_(std::move(all)) {}
  // That which holds [at, at + bytes); null: none.
  const Allocation* Find(std::uint64_t at, std::uint64_t bytes) const;

 private:
  std::vector<Allocation> all_;
};

}  // namespace ptx
