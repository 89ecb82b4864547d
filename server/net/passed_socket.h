// A listening socket that was opened before the daemon, by systemd's socket activation.
#pragma once

#include <string>

namespace thermocline::net {

// Its name is that of FileDescriptorName=.
struct PassedSocket {
  int fd;  // owned by the caller
  std::string name;
};

}  // namespace thermocline::net
