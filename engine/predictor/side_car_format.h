// The declarations that the reader and the writer of side-cars share; the grammar is in side_car.h.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace thermocline::predictor {

static_assert(std::endian::native == std::endian::little, "side-cars are written as in memory");

inline constexpr std::string_view kSideCarMagic = "TCSIDCAR";
inline constexpr std::uint32_t kSideCarVersion = 1;
inline constexpr std::uint64_t kSideCarAlignment = 64;

struct SideCarPrefix {
  char magic[8] = {};
  std::uint32_t version = 0;
  std::uint32_t header_bytes = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t zero = 0;
};
static_assert(sizeof(SideCarPrefix) == 32);

struct SideCarChecksum {
  std::uint64_t low = 0, high = 0;
};
static_assert(sizeof(SideCarChecksum) == 16);

inline constexpr std::uint64_t SideCarAligned(std::uint64_t bytes) {
  return (bytes + kSideCarAlignment - 1) / kSideCarAlignment * kSideCarAlignment;
}

}  // namespace thermocline::predictor
