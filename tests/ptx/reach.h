// The checked memory of an instruction's access: space, bounds, alignment, races, and uninitialized
// bytes.
#pragma once

#include <cstdio>
#include <string>

#include "tests/ptx/warp.h"

namespace ptx {

// The state of a byte of memory.
enum Written : std::uint8_t { kNever, kIs, kUnderWay };  // kUnderWay: a cp.async will write it

// Checked memory of one lane.
struct Reached {
  std::uint8_t* bytes = nullptr;
  std::uint8_t* written = nullptr;  // a Written per byte; nullptr: unknown
};

// Addresses in 32-bit registers wrap: nvcc stores an address below shared memory there and adds to
// it.
inline std::uint64_t AddressOf(const Address& address, Warp& warp, int lane) {
  const auto at = warp.Value(address.base, lane) + static_cast<std::uint64_t>(address.offset);
  return address.base.wide ? at : static_cast<std::uint32_t>(at);
}

class Reach {
 public:
  // `align`: 0 = bytes.
  Reach(Space space, Warp& warp, int lane, std::uint32_t bytes, AccessKind kind,
        std::uint32_t align = 0)
      : space_(space),
        warp_(warp),
        lane_(lane),
        bytes_(bytes),
        align_(align == 0 ? bytes : align),
        kind_(kind) {}

  Reached At(std::uint64_t at) {
    Space space = space_;
    if (at % align_ != 0) Fail("not aligned to " + std::to_string(align_) + " bytes", at);
    if (space == Space::kGeneric && at >= kSharedWindow && at < kSharedWindow + kWindowBytes)
      space = Space::kShared, at -= kSharedWindow;
    else if (space == Space::kGeneric && at >= kLocalWindow && at < kLocalWindow + kWindowBytes)
      space = Space::kLocal, at -= kLocalWindow;
    switch (space) {
      case Space::kParam:
        return Inside(const_cast<std::uint8_t*>(warp_.grid().params.data()),
                      warp_.grid().params.size(), at, "parameters");
      case Space::kLocal:
        return Inside(warp_.local(lane_).data(), warp_.local(lane_).size(), at, "local memory");
      case Space::kShared:
        return Shared(at);
      default:
        return Global(at);
    }
  }

 private:
  [[noreturn]] void Fail(const std::string& what, std::uint64_t at) const {
    char hex[32];
    std::snprintf(hex, sizeof(hex), "0x%llx", static_cast<unsigned long long>(at));
    warp_.Fail(lane_,
               (kind_.write ? "a store to " : "a load from ") + std::string(hex) + ": " + what);
  }
  Reached Inside(std::uint8_t* base, std::size_t size, std::uint64_t at, const char* what) const {
    if (at > size || bytes_ > size - at)
      Fail(std::string("outside of the ") + std::to_string(size) + " bytes of " + what, at);
    return {base + at, nullptr};
  }
  void CheckRace(Races& races, std::uint64_t at) const {
    const std::string race = races.Check(at, bytes_, kind_, warp_.Now(lane_));
    if (!race.empty()) Fail("a race: " + race, at);
  }
  Reached Shared(std::uint64_t at) const {
    Block& block = warp_.block();
    Reached out = Inside(block.shared.data(), block.shared.size(), at, "shared memory");
    CheckRace(block.shared_races, at);
    out.written = block.shared_written.data() + at;
    return out;
  }
  Reached Global(std::uint64_t at) const {
    const Allocation* found = warp_.grid().memory.Find(at, bytes_);
    if (found == nullptr) Fail("in no allocation", at);
    CheckRace(warp_.grid().races, at);
    return {reinterpret_cast<std::uint8_t*>(at),
            found->written == nullptr ? nullptr : found->written + (at - found->begin)};
  }

  Space space_;
  Warp& warp_;
  int lane_;
  std::uint32_t bytes_, align_;
  AccessKind kind_;
};

inline void CheckNotUnderWay(Warp& warp, int lane, const Reached& at, std::uint32_t bytes) {
  if (at.written == nullptr) return;
  for (std::uint32_t i = 0; i < bytes; ++i)
    if (at.written[i] == kUnderWay)
      warp.Fail(lane, "byte " + std::to_string(i) + " of " + std::to_string(bytes) +
                          " is under way: its cp.async was not waited for");
}

inline void CheckWritten(Warp& warp, int lane, const Reached& at, std::uint32_t bytes) {
  if (at.written == nullptr) return;
  CheckNotUnderWay(warp, lane, at, bytes);
  for (std::uint32_t i = 0; i < bytes; ++i)
    if (at.written[i] == kNever)
      warp.Fail(lane, "a load of byte " + std::to_string(i) + " of " + std::to_string(bytes) +
                          " that nobody has written");
}

}  // namespace ptx
