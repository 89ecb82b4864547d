// Bodies of rejected requests are read at a rate that all connections share.
#include "server/http/discard_pace.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace thermocline::http {
namespace {

using std::chrono::seconds;

// 600 MB/s of rejected bodies took a third of two processors from the streams.
TEST(DiscardPace, ConnectionsShareIt) {
  constexpr int kThreads = 4, kReads = 256;
  const auto began = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([] {
      for (int i = 0; i < kReads; ++i) WaitToDiscard(64 << 10);
    });
  for (std::thread& thread : threads) thread.join();
  const auto wait = WaitToDiscard(0);  // for 64 MiB
  const auto until = std::chrono::steady_clock::now() + wait - began;
  EXPECT_LE(wait, seconds(1));
  EXPECT_GE(until, std::chrono::milliseconds(990));
}

}  // namespace
}  // namespace thermocline::http
