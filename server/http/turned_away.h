// A connection that is not let in: it is told so, and what it sent is read.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "server/http/connection.h"

namespace thermocline::http {

// Sends `answer`, then reads and drops what comes until the client closes, for kTurnedAwayTime at
// most: a socket that is closed with bytes unread resets the connection, and the answer is lost.
// `waiting` counts those that are read from; of more than kTurnedAwayMax at once the rest are
// closed as they are. Never blocks.
inline constexpr std::chrono::seconds kTurnedAwayTime{2};
inline constexpr int kTurnedAwayMax = 256;
void SendAway(StreamSocket socket, std::string answer, std::shared_ptr<std::atomic<int>> waiting);

}  // namespace thermocline::http
