#include "server/core/request_id.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "engine/base/random.h"
#include "server/core/request_limits.h"

namespace thermocline::server {

bool IsRequestId(std::string_view id) {
  return !id.empty() && id.size() <= kRequestIdBytesMax &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

std::string NewRequestId() {
  char text[24];
  std::snprintf(text, sizeof(text), "req_%016" PRIx64, base::RandomBits64());
  return text;
}

std::string RequestIdFrom(std::string_view given) {
  return IsRequestId(given) ? std::string(given) : NewRequestId();
}

}  // namespace thermocline::server
