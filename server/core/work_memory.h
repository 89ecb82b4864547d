// The memory limit of begun work on requests. Large and small requests have separate lanes, so that
// neither kind keeps the other out.
#pragma once

#include <array>
#include <cstddef>

#include "engine/base/index.h"

namespace thermocline::server {

// Both lanes together have `bytes_max`. Thread-compatible.
class WorkMemory {
 public:
  enum class Lane { kSmall, kLarge };
  // The largest small request, in bytes: an eighth of `bytes_max`.
  static constexpr std::size_t SmallMax(std::size_t bytes_max) { return bytes_max / 8; }
  // The large lane's bytes: three quarters of `bytes_max`; the small lane has the rest.
  static constexpr std::size_t LargeMax(std::size_t bytes_max) { return bytes_max - bytes_max / 4; }

  explicit WorkMemory(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  Lane LaneOf(std::size_t bytes) const;
  // True if the request fits. A request larger than its lane fits when the lane is empty.
  bool HasRoom(std::size_t bytes) const;
  void Take(std::size_t bytes);
  // Requires: `bytes` were taken by one Take.
  void GiveBack(std::size_t bytes);

 private:
  std::size_t& Taken(std::size_t bytes);

  const std::size_t bytes_max_;
  std::array<std::size_t, 2> taken_ = {};  // bytes, by Lane
};

// The lanes that a waiting request reserves, so that requests behind it do not begin there.
class ReservedLanes {
 public:
  void Reserve(WorkMemory::Lane lane) { reserved_.at(base::Index(lane)) = true; }
  bool Has(WorkMemory::Lane lane) const { return reserved_.at(base::Index(lane)); }

 private:
  std::array<bool, 2> reserved_ = {};
};

}  // namespace thermocline::server
