// Refers to a socket that gRPC's library owns. The library does not report when it closes one, and
// its descriptor may refer to another file by then.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "server/grpc/connection_credit.h"

namespace thermocline::rpc {

// Identified by descriptor, device and inode. Thread-compatible; does not own the socket.
class SharedSocket {
 public:
  // `fd`: an open socket, not yet handed over. nullopt if it is not a socket.
  static std::optional<SharedSocket> Of(int fd);

  // False once the library has closed it.
  bool IsOpen() const;
  // The TCP counters, with age 0. nullopt: it is closed, or not TCP.
  std::optional<Traffic> Measure() const;
  // Limits the bytes in the kernel that the library has not read; the client keeps the rest.
  void LimitUnread(int bytes) const;
  // Ends both directions, so that the library closes it. Drops received bytes.
  void Shut() const;

 private:
  // A temporary second descriptor of the same socket.
  class Duplicate;

  int fd_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// The address and port of the peer.
struct Peer {
  std::string address;  // "192.0.2.1", "2001:db8::1"; "" = a Unix socket, or the peer has gone
  std::string name;     // as CanonicalPeer; "" as above
};
Peer PeerOf(int socket);

}  // namespace thermocline::rpc
