// The bytes that connections may send, by what their calls account for: gRPC's library buffers
// headers, frames and streams that are reset without a bound of ours, before a key is looked at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "engine/base/mutex.h"

namespace thermocline::rpc {

// The TCP counters of a connection and its age.
struct Traffic {
  std::uint64_t received = 0, sent = 0;  // bytes; sent: those that the client acknowledged
  std::uint64_t unread = 0;              // bytes that wait for the client to acknowledge them
  double age_s = 0;
};

// The calls of one connection that the daemon has seen.
struct Account {
  bool proven = false;          // a caller was accepted
  std::uint64_t accounted = 0;  // bytes of messages and metadata, and what carries them
  int uploads = 0;              // accepted calls whose message arrives
  int calls = 0;                // accepted calls that have not ended
  std::uint64_t held = 0;       // bytes that gRPC's library holds for those
  std::string owner = {};  // the key whose calls it carries; "" = there are no keys, or none yet
};

// Bytes that a connection has received beyond what its calls and the time explain. An unproven
// connection's calls explain nothing.
std::uint64_t UnaccountedBytes(const Traffic& traffic, const Account& account);
// The most of them that it may have. `body_bytes_max`: of one message.
std::uint64_t UnaccountedBytesMax(const Traffic& traffic, const Account& account,
                                  std::size_t body_bytes_max);
// True if a proven connection sends more than its calls and does not read the answers.
bool Floods(const Traffic& traffic, const Account& account);
// Bytes that the library may hold for a proven connection: of its calls, and of answers to what it
// sends beside them.
std::uint64_t HeldBytes(const Traffic& traffic, const Account& account);

// The accounts of all open TCP connections, by CanonicalPeer. Thread-safe.
class ConnectionCredit {
 public:
  // A new connection; one that had this peer before is forgotten.
  void Open(const std::string& peer);
  void Close(const std::string& peer);
  // From here on the connection carries `owner`'s calls. False: `owner` has `connections_max` that
  // do. True for a connection that is not open here.
  bool BelongTo(const std::string& peer, const std::string& owner, int connections_max);
  // A call has come, with so many bytes of metadata. `accepted`: its caller may call, and its
  // message follows.
  void CallBegan(const std::string& peer, std::size_t metadata_bytes, bool accepted);
  // The message of an accepted call has come, or will not: 0.
  void MessageEnded(const std::string& peer, std::size_t bytes);
  // An accepted call with so many bytes of metadata has ended.
  void CallEnded(const std::string& peer, std::size_t metadata_bytes);
  // Zeros for a connection that is not open.
  Account Of(const std::string& peer) const;
  // Bytes that gRPC's library holds for the accepted calls of all connections, closed ones too: it
  // ends their calls some time after their sockets.
  std::uint64_t HeldByCalls() const;

 private:
  void Disown(Account& account) REQUIRES(mutex_);

  mutable base::Mutex mutex_;
  std::map<std::string, int> by_owner_ GUARDED_BY(mutex_);
  std::map<std::string, Account, std::less<>> accounts_ GUARDED_BY(mutex_);
  std::uint64_t held_by_calls_ GUARDED_BY(mutex_) = 0;
};

// gRPC's name of a peer ("ipv4:127.0.0.1:1234", "ipv6:%5B::1%5D:1234") as ConnectionCredit knows
// it: "127.0.0.1 1234", "::1 1234", without the zone of a link. "" for other names, such as
// "unix:".
std::string CanonicalPeer(std::string_view grpc_peer);

}  // namespace thermocline::rpc
