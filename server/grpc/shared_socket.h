// A socket that gRPC's library owns: it does not say when it closes one, and the descriptor's
// number may be another file's by then.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "server/grpc/connection_credit.h"

namespace thermocline::rpc {

// Known by descriptor, device and inode. Thread-compatible; owns nothing.
class SharedSocket {
 public:
  // `fd`: an open socket, not yet handed over. nullopt: it is none.
  static std::optional<SharedSocket> Of(int fd);

  // False: the library has closed it.
  bool IsOpen() const;
  // TCP's counters; the age is left 0. nullopt: closed, or no TCP.
  std::optional<Traffic> Measure() const;
  // So many bytes wait at most for the library to read them; the next ones wait at the client.
  void LimitUnread(int bytes) const;
  // Ends both directions, so that the library closes it. What has arrived is dropped.
  void Shut() const;

 private:
  // A second descriptor of the same socket; closed with it, whatever the library does.
  class Duplicate;

  int fd_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// The address and the port of the other end.
struct Peer {
  std::string address;  // "192.0.2.1", "2001:db8::1"; "" = a Unix socket, or the other end has gone
  std::string name;     // as CanonicalPeer; "" likewise
};
Peer PeerOf(int socket);

}  // namespace thermocline::rpc
