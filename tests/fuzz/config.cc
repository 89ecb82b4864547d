// Fuzzes the daemon's configuration and --set: YAML, then lines "key=value".
#include "server/daemon/config_file.h"
#include "tests/fuzz/input.h"

using namespace thermocline;  // NOLINT: a target is a file of its own

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parts = fuzz::PartsOf(fuzz::TextOf(data, size), 2);
  const fuzz::InputFile file(parts[0]);
  std::vector<std::string> overrides;
  for (std::string_view rest = parts[1]; !rest.empty() && overrides.size() < 8;) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    overrides.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  (void)server::LoadServerConfig(file.path(), overrides);
  return 0;
}
