#include "engine/sched/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace thermocline::sched {
namespace {

TEST(StopMatcher, APartialStopNeverLeaks) {
  const std::vector<std::string> stops = {"STOP", "\n\nUser:"};
  // Every way to cut the text in pieces gives the same.
  const std::string text = "one ST two\n\nUse three\n\nUser: four STOP";
  std::mt19937 generator(1);
  for (int round = 0; round < 500; ++round) {
    StopMatcher matcher(stops);
    std::string out;
    bool stopped = false;
    for (std::size_t pos = 0; pos < text.size() && !stopped;) {
      const std::size_t length = 1 + generator() % 4;
      stopped = matcher.Push(std::string_view(text).substr(pos, length), out);
      pos += length;
    }
    EXPECT_TRUE(stopped);
    EXPECT_EQ(out, "one ST two\n\nUse three");
  }
}

TEST(StopMatcher, WhatWasHeldBackComesOutAtTheEnd) {
  const std::vector<std::string> stops = {"abc"};
  StopMatcher matcher(stops);
  std::string out;
  EXPECT_FALSE(matcher.Push("xab", out));
  EXPECT_EQ(out, "x");
  matcher.Finish(out);
  EXPECT_EQ(out, "xab");
}

TEST(StopMatcher, TheFirstOfSeveralStopsWins) {
  const std::vector<std::string> stops = {"lazy", "quick"};
  StopMatcher matcher(stops);
  std::string out;
  EXPECT_TRUE(matcher.Push("the quick and the lazy", out));
  EXPECT_EQ(out, "the ");
}

}  // namespace
}  // namespace thermocline::sched
