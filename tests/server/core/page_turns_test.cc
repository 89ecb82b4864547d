#include "server/core/page_turns.h"

#include <gtest/gtest.h>

namespace thermocline::server {
namespace {

using std::chrono::milliseconds;
using Clock = PageTurns::Clock;

const Clock::time_point kStart = Clock::time_point() + std::chrono::hours(1);

// The processor time that `connections` of one tenant get in ten seconds, in pages of `page`.
Clock::duration SpentInTenSeconds(PageTurns& turns, int connections, milliseconds page) {
  Clock::duration spent = {};
  Clock::time_point now = kStart;
  const Clock::time_point end = kStart + std::chrono::seconds(10);
  while (now < end) {
    Clock::duration wait = {};
    for (int i = 0; i < connections; ++i) {
      const PageTurns::Turn turn = turns.Begin("eve", now);
      wait = std::max(wait, turn.wait);
      if (now + turn.wait < end) spent += page;
      turns.End("eve", turn, page);
    }
    now += std::max<Clock::duration>(wait, page);
  }
  return spent;
}

TEST(PageTurns, AFloodOfPagesGetsAShareOfAProcessor) {
  for (const int connections : {1, 8, 200}) {
    PageTurns turns;
    const auto spent = SpentInTenSeconds(turns, connections, milliseconds(2));
    EXPECT_LE(spent, milliseconds(2100)) << connections;
    EXPECT_GE(spent, milliseconds(1500)) << connections;
  }
}

TEST(PageTurns, NobodyWaitsForAnother) {
  PageTurns turns;
  SpentInTenSeconds(turns, 200, milliseconds(2));
  EXPECT_EQ(turns.Begin("ann", kStart).wait, Clock::duration::zero());
}

TEST(PageTurns, AFewPagesDoNotWait) {
  PageTurns turns;
  for (int i = 0; i < 8; ++i) {
    const PageTurns::Turn turn = turns.Begin("ann", kStart);
    EXPECT_EQ(turn.wait, Clock::duration::zero());
    turns.End("ann", turn, milliseconds(2));
  }
}

TEST(PageTurns, PausesAreForgottenOnceTheyAreOver) {
  PageTurns turns;
  turns.End("ann", turns.Begin("ann", kStart), std::chrono::seconds(1));
  EXPECT_EQ(turns.Begin("ann", kStart + milliseconds(1)).wait,
            std::chrono::seconds(5) - PageTurns::kBurst - milliseconds(1));
  EXPECT_EQ(turns.Begin("ann", kStart + std::chrono::seconds(20)).wait, Clock::duration::zero());
}

}  // namespace
}  // namespace thermocline::server
