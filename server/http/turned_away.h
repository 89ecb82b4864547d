// Rejects a connection: sends a response, then drains the socket so that closing it does not reset
// the connection.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "server/http/connection.h"

namespace thermocline::http {

// Sends `answer`, then reads and drops bytes until the client closes, for kTurnedAwayTime at most:
// a socket that is closed with unread bytes resets the connection, and the answer is lost.
// `waiting` counts the connections being drained; beyond kTurnedAwayMax, connections are closed at
// once. Never blocks.
inline constexpr std::chrono::seconds kTurnedAwayTime{2};
inline constexpr int kTurnedAwayMax = 256;
void SendAway(StreamSocket socket, std::string answer, std::shared_ptr<std::atomic<int>> waiting);

}  // namespace thermocline::http
