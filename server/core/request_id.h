// Ids of requests, chosen by clients or made here. They appear in headers and logs, and requests
// are cancelled by them.
#pragma once

#include <string>
#include <string_view>

namespace thermocline::server {

// True if a client may use `id`: 1 to kRequestIdBytesMax characters of printable ASCII without
// spaces.
bool IsRequestId(std::string_view id);
// Returns "req_" and 16 unpredictable hexadecimal digits.
std::string NewRequestId();
// Returns `given` if it is an id, else a new one.
std::string RequestIdFrom(std::string_view given);

}  // namespace thermocline::server
