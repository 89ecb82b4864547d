#include "server/core/server_config.h"

#include <algorithm>

namespace thermocline::server {

std::vector<std::string> SplitList(const std::string& list) {
  std::vector<std::string> items;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::size_t first = list.find_first_not_of(" \t", begin);
    if (first < end) {
      const std::size_t last = list.find_last_not_of(" \t", end - 1);
      items.push_back(list.substr(first, last + 1 - first));
    }
    begin = end + 1;
  }
  return items;
}

int ServerConfig::ConnectionsMaxOf(const std::string& address) const {
  constexpr int kOfAnotherMachine = 64;
  if (connections_per_address_max >= 0) return connections_per_address_max;
  return IsLoopbackAddress(address) ? 0 : kOfAnotherMachine;
}

bool IsLoopbackAddress(const std::string& host) {
  const bool v4 = host.starts_with("127.") && host.find_first_not_of("0123456789.") == host.npos;
  return host == "localhost" || host == "::1" || v4;
}

}  // namespace thermocline::server
