#include "server/core/work_memory.h"

#include <gtest/gtest.h>

#include <limits>

namespace thermocline::server {
namespace {

TEST(WorkMemory, LanesShareAllOfIt) {
  WorkMemory memory(80);
  EXPECT_EQ(WorkMemory::LargeMax(80), 60u);
  EXPECT_EQ(memory.LaneOf(10), WorkMemory::Lane::kSmall);
  EXPECT_EQ(memory.LaneOf(11), WorkMemory::Lane::kLarge);
  memory.Take(40);
  EXPECT_TRUE(memory.HasRoom(20));
  EXPECT_FALSE(memory.HasRoom(21));
  memory.Take(10);
  EXPECT_TRUE(memory.HasRoom(10));
  memory.Take(10);
  EXPECT_FALSE(memory.HasRoom(1));
  EXPECT_TRUE(memory.HasRoom(0));
  memory.GiveBack(10);
  EXPECT_TRUE(memory.HasRoom(10));
  EXPECT_FALSE(memory.HasRoom(21));
}

TEST(WorkMemory, ARequestLargerThanItsLaneHasTheEmptyOne) {
  WorkMemory memory(80);
  EXPECT_TRUE(memory.HasRoom(1000));
  memory.Take(1000);
  EXPECT_FALSE(memory.HasRoom(11));
  EXPECT_TRUE(memory.HasRoom(10));
  memory.GiveBack(1000);
  EXPECT_TRUE(memory.HasRoom(60));
}

TEST(WorkMemory, MayBeUnbounded) {
  WorkMemory memory(std::numeric_limits<std::size_t>::max());
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(memory.HasRoom(std::size_t{1} << 40));
    memory.Take(std::size_t{1} << 40);
  }
}

}  // namespace
}  // namespace thermocline::server
