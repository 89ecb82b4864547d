#include "server/grpc/connection_credit.h"

#include <algorithm>

namespace thermocline::rpc {
namespace {

constexpr std::uint64_t kKiB = 1 << 10, kMiB = 1 << 20;
// The allowance until a first call is accepted: a TLS handshake, 32 KiB of metadata, and 64 KiB of
// a message, which HTTP/2 allows before that. A stream that is reset at once takes 110 bytes here
// and 21 KiB in the library (measured).
constexpr std::uint64_t kUnprovenBytes = 112 * kKiB;
constexpr std::uint64_t kProvenBytes = kMiB;     // for rejected calls, and health checks by a proxy
constexpr std::uint64_t kBytesPerSecond = kKiB;  // for pings and health checks
constexpr std::uint64_t kCallBytes = kKiB;       // for a call's frames and header fields
constexpr std::uint64_t kFrameShare = 64;        // one byte of frames and TLS per so many bytes
constexpr std::uint64_t kUploadsUnseen = 2;      // more uploads that may have begun unseen
// An open call takes 22 KiB in the library, besides its metadata (measured). The rest is for calls
// that arrive while a busy machine keeps the daemon from looking.
constexpr std::uint64_t kOpenCallBytes = 32 * kKiB;
// The library keeps metadata as it came and as it was decoded.
constexpr std::uint64_t kMetadataCopies = 2;
// A ping takes 17 bytes; its answer, while it waits, takes some ten times as many in the library.
constexpr std::uint64_t kUnreadAnswerShare = 10;
constexpr std::uint64_t kLeftUnreadBytes = 4 * kKiB;  // also for a slow reader

std::uint64_t HeldByCall(std::size_t metadata_bytes) {
  return kMetadataCopies * metadata_bytes + kOpenCallBytes;
}

}  // namespace

std::uint64_t UnaccountedBytes(const Traffic& traffic, const Account& account) {
  const std::uint64_t explained = static_cast<std::uint64_t>(traffic.age_s) * kBytesPerSecond +
                                  traffic.sent / 2 + (account.proven ? account.accounted : 0);
  return traffic.received - std::min(traffic.received, explained);
}

// Bytes for calls whose messages are arriving are not pings.
bool Floods(const Traffic& traffic, const Account& account) {
  return account.proven && account.uploads == 0 && traffic.unread >= kLeftUnreadBytes &&
         UnaccountedBytes(traffic, account) > 0;
}

std::uint64_t UnaccountedBytesMax(const Traffic& traffic, const Account& account,
                                  std::size_t body_bytes_max) {
  if (!account.proven) return kUnprovenBytes;
  if (Floods(traffic, account)) return kProvenBytes;
  const std::uint64_t uploads = account.uploads + kUploadsUnseen;
  return kProvenBytes + uploads * (body_bytes_max + body_bytes_max / kFrameShare);
}

std::uint64_t HeldBytes(const Traffic& traffic, const Account& account) {
  const std::uint64_t unaccounted = UnaccountedBytes(traffic, account);
  return account.held + unaccounted * (Floods(traffic, account) ? kUnreadAnswerShare : 1);
}

void ConnectionCredit::Open(const std::string& peer) {
  const base::MutexLock lock(mutex_);
  Account& account = accounts_[peer];
  Disown(account);
  account = {};
}

void ConnectionCredit::Close(const std::string& peer) {
  const base::MutexLock lock(mutex_);
  const auto found = accounts_.find(peer);
  if (found == accounts_.end()) return;
  Disown(found->second);
  accounts_.erase(found);
}

void ConnectionCredit::Disown(Account& account) {
  const auto found = by_owner_.find(account.owner);
  if (found != by_owner_.end() && --found->second == 0) by_owner_.erase(found);
  account.owner.clear();
}

bool ConnectionCredit::AssignTo(const std::string& peer, const std::string& owner,
                                int connections_max) {
  const base::MutexLock lock(mutex_);
  const auto found = accounts_.find(peer);
  if (found == accounts_.end() || found->second.owner == owner) return true;
  const auto of_owner = by_owner_.find(owner);
  if (of_owner != by_owner_.end() && of_owner->second >= connections_max) return false;
  Disown(found->second);
  found->second.owner = owner;
  ++by_owner_[owner];
  return true;
}

void ConnectionCredit::CallBegan(const std::string& peer, std::size_t metadata_bytes,
                                 bool accepted) {
  const base::MutexLock lock(mutex_);
  held_by_calls_ += HeldByCall(metadata_bytes);
  const auto found = accounts_.find(peer);
  if (found == accounts_.end()) return;
  Account& account = found->second;
  account.accounted += metadata_bytes + kCallBytes;
  account.proven = account.proven || accepted;
  account.uploads += accepted ? 1 : 0;
  account.calls += accepted ? 1 : 0;
  account.held += HeldByCall(metadata_bytes);
}

void ConnectionCredit::MessageEnded(const std::string& peer, std::size_t bytes) {
  const base::MutexLock lock(mutex_);
  const auto found = accounts_.find(peer);
  if (found == accounts_.end()) return;
  found->second.accounted += bytes + bytes / kFrameShare;
  // May belong to an earlier connection of this peer.
  found->second.uploads = std::max(0, found->second.uploads - 1);
}

void ConnectionCredit::CallEnded(const std::string& peer, std::size_t metadata_bytes,
                                 bool accepted) {
  const base::MutexLock lock(mutex_);
  held_by_calls_ -= HeldByCall(metadata_bytes);
  const auto found = accounts_.find(peer);
  if (found == accounts_.end()) return;
  Account& account = found->second;
  account.calls = std::max(0, account.calls - (accepted ? 1 : 0));
  account.held -= std::min(account.held, HeldByCall(metadata_bytes));
}

Account ConnectionCredit::Of(const std::string& peer) const {
  const base::MutexLock lock(mutex_);
  const auto found = accounts_.find(peer);
  return found == accounts_.end() ? Account{} : found->second;
}

std::uint64_t ConnectionCredit::HeldByCalls() const {
  const base::MutexLock lock(mutex_);
  return held_by_calls_;
}

std::string CanonicalPeer(std::string_view grpc_peer) {
  const std::size_t kind = grpc_peer.find(':'), port = grpc_peer.rfind(':');
  if (kind == port || !(grpc_peer.starts_with("ipv4:") || grpc_peer.starts_with("ipv6:")))
    return "";
  std::string_view address = grpc_peer.substr(kind + 1, port - kind - 1);
  for (const std::string_view bracket : {"%5B", "["})
    if (address.starts_with(bracket)) address.remove_prefix(bracket.size());
  address = address.substr(0, address.find_first_of("%]"));
  return std::string(address) + " " + std::string(grpc_peer.substr(port + 1));
}

}  // namespace thermocline::rpc
