#include "server/net/connection_count.h"

#include <gtest/gtest.h>

#include <vector>

namespace thermocline::net {
namespace {

using Entry = ConnectionCount::Entry;

class ConnectionCountTest : public testing::Test {
 protected:
  std::unique_ptr<ConnectionPlace> Place(const char* address = "a") {
    return std::make_unique<ConnectionPlace>(count_, address);
  }
  std::shared_ptr<ConnectionCount> count_ = std::make_shared<ConnectionCount>();
};

TEST_F(ConnectionCountTest, PlacesAreFreeAgainAtTheirEnd) {
  auto first = Place(), second = Place(), third = Place();
  EXPECT_EQ(first->Enter(2, 0), Entry::kIn);
  EXPECT_EQ(second->Enter(2, 0), Entry::kIn);
  EXPECT_EQ(third->Enter(2, 0), Entry::kFull);
  first.reset();
  EXPECT_EQ(Place()->Enter(2, 1), Entry::kFullForAddress);
  EXPECT_EQ(Place("b")->Enter(2, 1), Entry::kIn);
}

// 256 silent connections once kept out all clients for two minutes.
TEST_F(ConnectionCountTest, TheOneThatIsIdleLongestMakesWay) {
  std::vector<int> left;
  std::vector<std::unique_ptr<ConnectionPlace>> places;
  for (int i = 0; i < 4; ++i) {
    places.push_back(Place());
    ASSERT_EQ(places.back()->Enter(4, 0), Entry::kIn);
    places.back()->MarkIdle([&left, i] { left.push_back(i); });
  }
  EXPECT_TRUE(places[0]->MarkBusy());
  EXPECT_EQ(Place()->Enter(4, 4), Entry::kFullForAddress);
  EXPECT_TRUE(left.empty()) << "nobody makes way for what is refused anyway";
  auto next = Place("b");
  EXPECT_EQ(next->Enter(4, 0), Entry::kIn);
  EXPECT_EQ(left, std::vector<int>({1}));
  EXPECT_FALSE(places[1]->MarkBusy()) << "its request came too late";
  places[0]->MarkIdle([&left] { left.push_back(0); });
  auto others = {Place("c"), Place("c"), Place("c"), Place("c")};
  std::vector<Entry> entries;
  for (const auto& other : others) entries.push_back(other->Enter(4, 0));
  EXPECT_EQ(entries, std::vector<Entry>({Entry::kIn, Entry::kIn, Entry::kIn, Entry::kFull}));
  EXPECT_EQ(left, std::vector<int>({1, 2, 3, 0}));
  places.clear();  // closing ones are no longer counted
  EXPECT_EQ(Place("d")->Enter(4, 0), Entry::kFull);
}

}  // namespace
}  // namespace thermocline::net
