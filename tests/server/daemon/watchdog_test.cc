#include "server/daemon/watchdog.h"

#include <gtest/gtest.h>

namespace thermocline::server {
namespace {

using std::chrono::seconds;

struct Look {
  int at_s;
  int running, paused, waiting;
  std::int64_t heartbeat;
  bool alive;
};

void Follow(const std::vector<Look>& looks) {
  ProgressWatch watch{seconds(30)};
  const ProgressWatch::Clock::time_point begin{seconds(1000)};
  for (const Look& look : looks) {
    EngineStats stats;
    stats.running = look.running;
    stats.paused = look.paused;
    stats.waiting = look.waiting;
    stats.heartbeat = look.heartbeat;
    EXPECT_EQ(watch.Alive(stats, begin + seconds(look.at_s)), look.alive) << look.at_s << " s";
  }
}

TEST(ProgressWatchTest, WorkThatGetsOnIsAlive) {
  Follow({{0, 1, 0, 0, 5, true}, {29, 1, 0, 0, 6, true}, {58, 1, 0, 3, 7, true}});
}

TEST(ProgressWatchTest, AHeartbeatThatStandsStillUnderWorkIsNot) {
  Follow({{0, 1, 0, 0, 5, true},
          {30, 1, 0, 0, 5, true},
          {31, 1, 0, 0, 5, false},
          {60, 2, 1, 0, 5, false},
          {61, 1, 0, 0, 6, true}});
}

TEST(ProgressWatchTest, NobodyNeedsAHeartbeatWithoutWork) {
  Follow({{0, 0, 0, 0, 5, true},
          {3600, 0, 0, 0, 5, true},
          {3601, 2, 2, 0, 5, true},  // both wait for their clients
          {7000, 2, 2, 9, 5, true},
          {7001, 1, 0, 0, 5, true},  // new work has the full time
          {7030, 1, 0, 0, 5, true},
          {7032, 1, 0, 0, 5, false}});
}

TEST(ProgressWatchTest, PlacesOfPromptsThatAreNotReadYetAreNoWork) {
  ProgressWatch watch{seconds(30)};
  const ProgressWatch::Clock::time_point begin{seconds(1000)};
  EngineStats stats;
  stats.waiting = stats.reserved = 2;
  for (const int at : {0, 31, 62}) EXPECT_TRUE(watch.Alive(stats, begin + seconds(at)));
  stats.waiting = 3;
  for (const int at : {63, 92}) EXPECT_TRUE(watch.Alive(stats, begin + seconds(at)));
  EXPECT_FALSE(watch.Alive(stats, begin + seconds(93)));
}

TEST(ProgressWatchTest, WhatIsNeverBegunIsAHang) {
  Follow({{0, 0, 0, 0, 5, true}, {10, 0, 0, 1, 5, true}, {41, 0, 0, 1, 5, false}});
}

}  // namespace
}  // namespace thermocline::server
