// The ids of requests: chosen by clients or made here, in headers, logs, and to cancel by.
#pragma once

#include <string>
#include <string_view>

namespace thermocline::server {

// True if a client may call its request that: 1 to kRequestIdBytesMax characters of printable ASCII
// without spaces.
bool IsRequestId(std::string_view id);
// "req_" and 16 hexadecimal digits that nobody can guess.
std::string NewRequestId();
// `given` if it is an id, else a new one.
std::string RequestIdFrom(std::string_view given);

}  // namespace thermocline::server
