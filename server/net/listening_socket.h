// Sockets that listen: TCP, Unix, or open before the daemon.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "engine/base/status.h"
#include "server/net/passed_socket.h"
#include "server/net/socket_file.h"

namespace thermocline::net {

// Movable; closes the socket, and removes the file of a Unix socket that it made.
class ListeningSocket {
 public:
  // At `host`, a name or an IP address, without brackets. A name may have several addresses,
  // "localhost" two: they get the same port. `port` "0" = any free one. Unavailable with the
  // reason.
  static Result<std::vector<ListeningSocket>> Tcp(const std::string& host, const std::string& port);
  // At a path. It gives way to the file of a process that was killed, not to one that is served.
  // Unavailable with the reason.
  static Result<ListeningSocket> Unix(const std::string& path, mode_t mode);
  // Takes the descriptor. InvalidArgument, with the name: it does not listen.
  static Result<ListeningSocket> Passed(const PassedSocket& socket);

  ListeningSocket(ListeningSocket&& other) noexcept;
  ListeningSocket& operator=(ListeningSocket&& other) noexcept;
  ~ListeningSocket();

  int fd() const { return fd_; }
  bool is_unix() const;
  const std::string& path() const { return file_.path(); }  // "": TCP, or passed

 private:
  ListeningSocket(int fd, SocketFile file) : fd_(fd), file_(std::move(file)) {}

  int fd_ = -1;
  SocketFile file_;
};

}  // namespace thermocline::net
