#include "server/core/server_config.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

#include "engine/base/bytes.h"

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

std::optional<double> SecondsOf(std::string_view text) {
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}, {"", 1}};
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  if (text.empty()) return std::nullopt;
  double all = 0;
  bool first = true;  // a number without a unit stands alone
  while (!text.empty()) {
    if (text.front() < '0' || text.front() > '9') return std::nullopt;
    double value = 0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
    if (error != std::errc()) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    const auto unit = std::find_if(std::begin(kUnits), std::end(kUnits), [&](const auto& each) {
      return each.first.empty() ? text.empty() && first : text.starts_with(each.first);
    });
    if (unit == std::end(kUnits)) return std::nullopt;
    first = false;
    text.remove_prefix(unit->first.size());
    all += value * unit->second;
  }
  return negative ? -all : all;
}

std::string PlainName(std::string name) {
  constexpr std::string_view kTag = ":latest";
  for (char& c : name) c = base::ToLower(c);
  if (name.ends_with(kTag)) name.resize(name.size() - kTag.size());
  return name;
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
