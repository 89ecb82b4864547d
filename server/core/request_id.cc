#include "server/core/request_id.h"

#include <algorithm>
#include <cstdio>
#include <random>

#include "server/core/request_limits.h"

namespace thermocline::server {

bool IsRequestId(std::string_view id) {
  return !id.empty() && id.size() <= kRequestIdBytesMax &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

std::string NewRequestId() {
  std::random_device device;
  char text[24];
  std::snprintf(text, sizeof(text), "req_%08x%08x", device(), device());
  return text;
}

std::string RequestIdFrom(std::string_view given) {
  return IsRequestId(given) ? std::string(given) : NewRequestId();
}

}  // namespace thermocline::server
