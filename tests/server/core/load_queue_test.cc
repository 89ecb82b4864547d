// The models that wait to be loaded.
#include "server/core/load_queue.h"

#include <gtest/gtest.h>

namespace thermocline::server {
namespace {

std::shared_ptr<ServedModel> NewModel() {
  return std::make_shared<ServedModel>(*MakeReloadableConfig(ServerConfig()), nullptr);
}

// A model held others back, and was loaded, though its clients had left.
TEST(LoadQueue, AModelForWhichNobodyWaitsAnyMoreIsDropped) {
  LoadQueue queue;
  const auto left = NewModel(), awaited = NewModel(), pinned = NewModel();
  int told = 0;
  const auto woken = [&told](const Status&) { ++told; };
  left->waiting.push_back({.woken = woken, .gone = [] { return true; }});
  awaited->waiting.push_back({.woken = woken, .gone = [] { return true; }});
  awaited->waiting.push_back({.woken = woken, .gone = [] { return false; }});
  for (const auto& model : {left, awaited, pinned}) queue.Add(model);
  const auto gone = queue.TakeEnded();
  EXPECT_EQ(gone.size(), 2U);
  EXPECT_EQ(told, 0);  // the caller tells them, without the lock
  EXPECT_FALSE(left->queued);
  EXPECT_TRUE(awaited->queued);
  EXPECT_TRUE(pinned->queued);  // loaded at the start, for no request
  EXPECT_EQ(std::distance(queue.begin(), queue.end()), 2);
}

TEST(LoadQueue, AModelIsInItOnce) {
  LoadQueue queue;
  const auto model = NewModel();
  queue.Add(model);
  queue.Add(model);
  queue.Remove(*model);
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace thermocline::server
