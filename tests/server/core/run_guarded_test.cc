#include "server/core/run_guarded.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include <boost/asio/post.hpp>

namespace thermocline::server {
namespace {

TEST(RunGuarded, WhatAHandlerThrowsDoesNotKeepTheNextFromRunning) {
  boost::asio::io_context io;
  int ran = 0;
  for (int i = 0; i < 3; ++i) {
    boost::asio::post(io, [&ran] {
      ++ran;
      throw std::length_error("of one request");
    });
  }
  RunGuarded(io);
  EXPECT_EQ(ran, 3);
  EXPECT_TRUE(io.stopped());
}

}  // namespace
}  // namespace thermocline::server
