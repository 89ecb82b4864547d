// The loop of a serving thread: runs posted handlers and survives their exceptions.
#pragma once

#include <boost/asio/io_context.hpp>

#include "engine/base/log.h"

namespace thermocline::server {

// Runs the handlers of `io` here until it is stopped or has no more work. An exception from a
// handler ends the handler's connection or call, which loses its last reference, but not the
// daemon.
inline void RunGuarded(boost::asio::io_context& io) {
  for (;;) {
    try {
      io.run();
      return;
    } catch (const std::exception& error) {
      base::LogError("a connection or a call is given up: ", error.what());
    }
  }
}

}  // namespace thermocline::server
