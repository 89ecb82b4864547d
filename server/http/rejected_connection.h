// Rejects a connection: sends a response, then drains the socket so that closing it does not reset
// the connection.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "server/http/connection.h"

namespace thermocline::http {

// Sends `answer`, then reads and drops bytes until the client closes, for kRejectedTime at most:
// a socket that is closed with unread bytes resets the connection, and the answer is lost.
// `waiting` counts the connections being drained; beyond kRejectedMax, connections are closed at
// once. Never blocks.
inline constexpr std::chrono::seconds kRejectedTime{2};
inline constexpr int kRejectedMax = 256;
void RejectConnection(StreamSocket socket, std::string answer,
                      std::shared_ptr<std::atomic<int>> waiting);

}  // namespace thermocline::http
