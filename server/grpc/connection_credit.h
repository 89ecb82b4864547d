// Limits the bytes of connections to those that their calls justify. gRPC's library buffers
// headers, frames and reset streams without a limit of ours, before the key is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "engine/base/mutex.h"

namespace thermocline::rpc {

// A connection's TCP counters and age.
struct Traffic {
  std::uint64_t received = 0, sent = 0;  // bytes; sent: acknowledged by the client
  std::uint64_t unread = 0;              // bytes that the client has not acknowledged
  double age_s = 0;
};

// The calls of one connection that the daemon has seen.
struct Account {
  bool proven = false;          // a call was accepted
  std::uint64_t accounted = 0;  // bytes of messages, metadata, and their framing
  int uploads = 0;              // accepted calls whose message is arriving
  int calls = 0;                // accepted calls that have not ended
  std::uint64_t held = 0;       // bytes that gRPC's library holds for calls, rejected ones too
  // The key of its calls; "" = no keys are configured, or none was given yet.
  std::string owner = {};
};

// Bytes received beyond those that the connection's calls and age justify. An unproven connection's
// calls justify none.
std::uint64_t UnaccountedBytes(const Traffic& traffic, const Account& account);
// The limit on unaccounted bytes. `body_bytes_max`: for one message.
std::uint64_t UnaccountedBytesMax(const Traffic& traffic, const Account& account,
                                  std::size_t body_bytes_max);
// True if a proven connection sends unaccounted bytes and does not read the answers.
bool Floods(const Traffic& traffic, const Account& account);
// Bytes that the library may hold for a proven connection: for its calls, and for answers to its
// unaccounted bytes.
std::uint64_t HeldBytes(const Traffic& traffic, const Account& account);

// The accounts of all open TCP connections, by CanonicalPeer. Thread-safe.
class ConnectionCredit {
 public:
  // Adds a new connection, which replaces an earlier one of the same peer.
  void Open(const std::string& peer);
  void Close(const std::string& peer);
  // Assigns the connection to `owner`. False: `owner` already has `connections_max`. True for a
  // connection that is not open here.
  bool AssignTo(const std::string& peer, const std::string& owner, int connections_max);
  // A call has started, with so many bytes of metadata. `accepted`: the caller has access, and the
  // message follows.
  void CallBegan(const std::string& peer, std::size_t metadata_bytes, bool accepted);
  // The message of an accepted call has arrived; 0 if none will.
  void MessageEnded(const std::string& peer, std::size_t bytes);
  // The call that CallBegan with the same values has ended.
  void CallEnded(const std::string& peer, std::size_t metadata_bytes, bool accepted);
  // Returns zeros for a connection that is not open.
  Account Of(const std::string& peer) const;
  // Bytes that gRPC's library holds for the calls of all connections, closed ones too: it
  // ends their calls some time after their sockets.
  std::uint64_t HeldByCalls() const;

 private:
  void Disown(Account& account) REQUIRES(mutex_);

  mutable base::Mutex mutex_;
  std::map<std::string, int> by_owner_ GUARDED_BY(mutex_);
  std::map<std::string, Account, std::less<>> accounts_ GUARDED_BY(mutex_);
  std::uint64_t held_by_calls_ GUARDED_BY(mutex_) = 0;
};

// Converts gRPC's name of a peer ("ipv4:127.0.0.1:1234", "ipv6:%5B::1%5D:1234") to the name in
// ConnectionCredit: "127.0.0.1 1234", "::1 1234", without the zone of a link. "" for other names,
// such as "unix:".
std::string CanonicalPeer(std::string_view grpc_peer);

}  // namespace thermocline::rpc
