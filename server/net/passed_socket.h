// A listening socket that was open before the daemon: systemd's socket activation.
#pragma once

#include <string>

namespace thermocline::net {

// Sockets that were open before the daemon, by the names of FileDescriptorName=.
struct PassedSocket {
  int fd;  // owned by the caller
  std::string name;
};

}  // namespace thermocline::net
