#include "server/core/server_config.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdint>

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

std::string NetworkOf(const std::string& address) {
  in6_addr bytes{};
  char text[INET6_ADDRSTRLEN] = "";
  const bool v6 = address.find(':') != std::string::npos &&
                  ::inet_pton(AF_INET6, address.substr(0, address.find('%')).c_str(), &bytes) == 1;
  if (!v6 || IsLoopbackAddress(address)) return address;
  if (IN6_IS_ADDR_V4MAPPED(&bytes))
    return ::inet_ntop(AF_INET, bytes.s6_addr + 12, text, sizeof(text));
  std::fill(bytes.s6_addr + 8, bytes.s6_addr + 16, std::uint8_t{0});
  return std::string(::inet_ntop(AF_INET6, &bytes, text, sizeof(text))) + "/64";
}

}  // namespace thermocline::server
