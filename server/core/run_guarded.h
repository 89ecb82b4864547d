// A thread that serves: runs what is posted, whatever becomes of it.
#pragma once

#include <boost/asio/io_context.hpp>

#include "engine/base/log.h"

namespace thermocline::server {

// Runs the handlers of `io` here until it is stopped or has no more work. What one lets escape ends
// the connection or the call that it was of, which nothing holds any more, not the daemon.
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
