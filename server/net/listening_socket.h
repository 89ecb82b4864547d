// Listening sockets: TCP, Unix, or opened before the daemon started.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "engine/base/status.h"
#include "server/net/passed_socket.h"
#include "server/net/socket_file.h"

namespace thermocline::net {

// Movable; closes the socket, and removes the file of a Unix socket that it created.
class ListeningSocket {
 public:
  // Listens at `host`, a name or an IP address, without brackets. If a name has several addresses
  // ("localhost" has two), they get the same port. `port` "0" = any free one. Unavailable with the
  // reason.
  static Result<std::vector<ListeningSocket>> Tcp(const std::string& host, const std::string& port);
  // Listens at a path. Replaces the file of a process that was killed, but not of one that still
  // listens. Unavailable with the reason.
  static Result<ListeningSocket> Unix(const std::string& path, mode_t mode);
  // Takes ownership of the descriptor. InvalidArgument, with the name: it is not listening.
  static Result<ListeningSocket> Passed(const PassedSocket& socket);

  ListeningSocket(ListeningSocket&& other) noexcept;
  ListeningSocket& operator=(ListeningSocket&& other) noexcept;
  ~ListeningSocket();

  int fd() const { return fd_; }
  bool is_unix() const;
  const std::string& path() const { return file_.path(); }  // "" = TCP, or passed

 private:
  ListeningSocket(int fd, SocketFile file) : fd_(fd), file_(std::move(file)) {}

  int fd_ = -1;
  SocketFile file_;
};

}  // namespace thermocline::net
