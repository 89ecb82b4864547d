#include "server/core/work_memory.h"

#include "engine/base/index.h"

namespace thermocline::server {

WorkMemory::Lane WorkMemory::LaneOf(std::size_t bytes) const {
  return bytes > SmallMax(bytes_max_) ? Lane::kLarge : Lane::kSmall;
}

bool WorkMemory::HasRoom(std::size_t bytes) const {
  const Lane lane = LaneOf(bytes);
  const std::size_t taken = taken_[base::Index(lane)];
  const std::size_t large = LargeMax(bytes_max_);
  const std::size_t lane_max = lane == Lane::kLarge ? large : bytes_max_ - large;
  return taken == 0 || (taken <= lane_max && bytes <= lane_max - taken);
}

void WorkMemory::Take(std::size_t bytes) { Taken(bytes) += bytes; }

void WorkMemory::GiveBack(std::size_t bytes) { Taken(bytes) -= bytes; }

std::size_t& WorkMemory::Taken(std::size_t bytes) { return taken_[base::Index(LaneOf(bytes))]; }

}  // namespace thermocline::server
