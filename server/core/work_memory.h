// The memory that the requests of begun work may take. Large requests and small ones have lanes of
// their own, so that neither kind keeps the other out.
#pragma once

#include <array>
#include <cstddef>

namespace thermocline::server {

// Both lanes together have `bytes_max`. Thread-compatible.
class WorkMemory {
 public:
  enum class Lane { kSmall, kLarge };
  // A large request takes more than an eighth of `bytes_max`. Bytes.
  static constexpr std::size_t SmallMax(std::size_t bytes_max) { return bytes_max / 8; }
  // The large lane has three quarters of it, the small one the rest. Bytes.
  static constexpr std::size_t LargeMax(std::size_t bytes_max) { return bytes_max - bytes_max / 4; }

  explicit WorkMemory(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  Lane LaneOf(std::size_t bytes) const;
  // A request larger than its lane has room in the empty lane.
  bool HasRoom(std::size_t bytes) const;
  void Take(std::size_t bytes);
  // Requires: as many bytes were taken at once.
  void GiveBack(std::size_t bytes);

 private:
  std::size_t& Taken(std::size_t bytes);

  const std::size_t bytes_max_;
  std::array<std::size_t, 2> taken_ = {};  // bytes, by Lane
};

// The lanes in which a waiting request keeps those behind it from beginning.
class ReservedLanes {
 public:
  void Reserve(WorkMemory::Lane lane) { reserved_.at(static_cast<std::size_t>(lane)) = true; }
  bool Has(WorkMemory::Lane lane) const { return reserved_.at(static_cast<std::size_t>(lane)); }

 private:
  std::array<bool, 2> reserved_ = {};
};

}  // namespace thermocline::server
