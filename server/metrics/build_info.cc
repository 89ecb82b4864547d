#include "server/metrics/build_info.h"

namespace thermocline::server {

std::map<std::string, std::string> BuildInfo() {
#if defined(__clang__)
  const std::string compiler = "clang " __clang_version__;
#else
  const std::string compiler = "gcc " __VERSION__;
#endif
#if defined(__x86_64__)
  const std::string arch = "x86_64";
#elif defined(__aarch64__)
  const std::string arch = "aarch64";
#else
  const std::string arch = "other";
#endif
  return {{"version", THERMOCLINE_VERSION},
          {"commit", THERMOCLINE_COMMIT},
          {"compiler", compiler},
          {"backend", THERMOCLINE_BACKEND},
          {"arch", arch}};
}

}  // namespace thermocline::server
