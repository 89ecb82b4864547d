#include "server/grpc/open_connections.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/base/log.h"

namespace thermocline::rpc {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kUnprovenMax = 32;
constexpr milliseconds kTimeForACall{250};  // guaranteed to a new connection
constexpr milliseconds kPause{50};  // before the next connection, after one that sent too much
// All unproven connections together may have sent this fraction of the memory of gRPC's library, in
// which their bytes can take up to 190 times as much.
constexpr std::size_t kUnprovenShare = 96;
// The kernel holds this many unread bytes, which limits the bytes between two checks. More would
// not speed up messages: the window of a stream is 64 KiB.
constexpr int kUnprovenUnreadBytes = 16 << 10, kProvenUnreadBytes = 128 << 10;
constexpr milliseconds kYoung{100};
constexpr milliseconds kCheckInterval{50}, kCloseCheckInterval{10}, kSenderCheckInterval{2};
// So many proven connections can hold equal parts of what calls may hold. While those that were
// shut still hold much, no other may hold more than such a part.
constexpr std::uint64_t kFairConnections = 48;
constexpr double kCloseToFull = 0.25;  // of what calls may hold; looked at closely above it
constexpr milliseconds kLogInterval{1000};
// The library frees a connection's calls some time after its socket is closed.
constexpr milliseconds kTrimLater{2000};
constexpr std::uint64_t kTrimBytes = 256 << 10;

}  // namespace

bool OpenConnections::IsUnproven(const Connection& connection) const {
  return !connection.proven && !connection.shut && !connection.peer.name.empty() &&
         !credit_.Of(connection.peer.name).proven;
}

OpenConnections::Connection* OpenConnections::OldestUnproven() {
  const auto found = std::find_if(open_.begin(), open_.end(),
                                  [this](const Connection& each) { return IsUnproven(each); });
  return found == open_.end() ? nullptr : &*found;
}

std::size_t OpenConnections::UnprovenCount() const {
  return std::count_if(open_.begin(), open_.end(),
                       [this](const Connection& each) { return IsUnproven(each); });
}

bool OpenConnections::HasRoomForUnproven() {
  if (Clock::now() < paused_until_ || CallsHoldMoreThan(1)) return false;
  return UnprovenCount() < kUnprovenMax || Clock::now() - OldestUnproven()->opened >= kTimeForACall;
}

bool OpenConnections::Admit(int fd) {
  const auto socket = SharedSocket::Of(fd);
  if (!socket.has_value()) return false;
  Connection next{.socket = *socket, .peer = PeerOf(fd), .place = {}, .opened = Clock::now()};
  const std::string network = server::NetworkOf(next.peer.address);
  next.place = TakePlace(network);
  if (next.place == nullptr) {
    RemoveClosed();
    next.place = TakePlace(network);
  }
  if (next.place == nullptr) return false;
  // Forgets an earlier connection of the same port.
  std::erase_if(open_, [&](const Connection& each) {
    return !next.peer.name.empty() && each.peer.name == next.peer.name;
  });
  if (!next.peer.name.empty() && UnprovenCount() >= kUnprovenMax) Shut(*OldestUnproven());
  if (!next.peer.name.empty()) {
    credit_.Open(next.peer.name);
    next.socket.LimitUnread(kUnprovenUnreadBytes);
  }
  open_.push_back(std::move(next));
  if (!open_.back().peer.name.empty()) MakeWayIfIdle(open_.back(), {});
  return true;
}

void OpenConnections::MakeWayIfIdle(Connection& connection, const Account& account) {
  const bool idle = account.calls == 0, was_idle = std::exchange(connection.makes_way, idle);
  const bool called = std::exchange(connection.accounted, account.accounted) != account.accounted;
  if (!idle && was_idle && !connection.place->MarkBusy()) Shut(connection);
  if (!idle || (was_idle && !called)) return;
  // Only TakePlace calls it, on this thread, since no other thread uses the count.
  connection.place->MarkIdle([this, name = connection.peer.name] {
    for (Connection& each : open_)
      if (each.peer.name == name) Shut(each);
  });
}

std::unique_ptr<net::ConnectionPlace> OpenConnections::TakePlace(const std::string& network) const {
  const auto reloadable = service_.reloadable();
  auto place = std::make_unique<net::ConnectionPlace>(count_, network);
  const auto entry = place->Enter(reloadable->config.connections_max,
                                  reloadable->config.ConnectionsMaxOf(network));
  return entry == net::ConnectionCount::Entry::kIn ? std::move(place) : nullptr;
}

void OpenConnections::RemoveClosed() {
  std::erase_if(open_, [this](const Connection& connection) {
    if (connection.socket.IsOpen()) return false;
    if (!connection.peer.name.empty()) credit_.Close(connection.peer.name);
    if (closed_bytes_ == 0) closed_at_ = Clock::now();
    closed_bytes_ += connection.received;
    return true;
  });
}

bool OpenConnections::CallsHoldMoreThan(double share) const {
  return static_cast<double>(credit_.HeldByCalls()) >
         share * static_cast<double>(service_.request_sizes().grpc);
}

int OpenConnections::Check() {
  const auto now = Clock::now();
  const milliseconds interval =
      CallsHoldMoreThan(kCloseToFull) ? kCloseCheckInterval : kCheckInterval;
  const bool all = now - all_checked_at_ >= interval;
  if (all) {
    all_checked_at_ = now;
    RemoveClosed();
  }
  milliseconds next = interval;
  for (Connection& connection : open_) {
    if (connection.peer.name.empty() || connection.shut) continue;
    if (connection.proven && !all && !connection.floods) continue;
    const bool received = CheckConnection(connection, now);
    if (connection.floods) next = std::min(next, kCloseCheckInterval);
    if (connection.proven) continue;
    const bool sends = received || now - connection.opened < kYoung;
    next = std::min(next, sends ? kSenderCheckInterval : kCloseCheckInterval);
  }
  const std::size_t bytes_max = service_.request_sizes().grpc;
  ShutMostWhileAbove(true, bytes_max);
  if (CallsHoldMoreThan(1)) ShutAbove(bytes_max / kFairConnections);
  ShutMostWhileAbove(false, bytes_max / kUnprovenShare);
  LogShut(now);
  TrimBehindClosed(now);
  if (open_.empty() && unlogged_ == 0 && closed_bytes_ == 0) return -1;
  return static_cast<int>(next.count());
}

bool OpenConnections::CheckConnection(Connection& connection, Clock::time_point now) {
  // The account is read after the counters, so that a call in between counts in the client's favor.
  auto traffic = connection.socket.Measure();
  if (!traffic.has_value()) return false;
  const Account account = credit_.Of(connection.peer.name);
  traffic->age_s = std::chrono::duration<double>(now - connection.opened).count();
  if (account.proven && !std::exchange(connection.proven, true))
    connection.socket.LimitUnread(kProvenUnreadBytes);
  if (!account.owner.empty())
    connection.place->AssignTo(account.owner, std::numeric_limits<int>::max());
  MakeWayIfIdle(connection, account);
  const std::uint64_t unaccounted = UnaccountedBytes(*traffic, account);
  connection.unaccounted = unaccounted;
  connection.held = HeldBytes(*traffic, account);
  connection.floods = Floods(*traffic, account);
  const std::size_t body_bytes_max = service_.config().body_bytes_max;
  if (unaccounted > UnaccountedBytesMax(*traffic, account, body_bytes_max)) ShutSender(connection);
  return std::exchange(connection.received, traffic->received) != traffic->received;
}

void OpenConnections::ShutMostWhileAbove(bool proven, std::size_t bytes_max) {
  const auto bytes_of = [proven](const Connection& each) {
    if (each.shut || each.proven != proven) return std::uint64_t{0};
    return proven ? each.held : each.unaccounted;
  };
  std::uint64_t all = 0;
  for (const Connection& each : open_) all += bytes_of(each);
  while (all > bytes_max) {
    Connection& most = *std::max_element(open_.begin(), open_.end(),
                                         [&](const Connection& left, const Connection& right) {
                                           return bytes_of(left) < bytes_of(right);
                                         });
    all -= bytes_of(most);
    ShutSender(most);
  }
}

void OpenConnections::ShutAbove(std::uint64_t bytes_max) {
  for (Connection& each : open_)
    if (each.proven && !each.shut && each.held > bytes_max) ShutSender(each);
}

void OpenConnections::ShutSender(Connection& connection) {
  paused_until_ = Clock::now() + kPause;
  Shut(connection);
}

void OpenConnections::Shut(Connection& connection) {
  if (std::exchange(connection.shut, true)) return;
  connection.socket.Shut();
  service_.metrics().RequestRejected("connections");
  service_.request_memory().RequestTrim();
  ++unlogged_;
}

void OpenConnections::TrimBehindClosed(Clock::time_point now) {
  if (closed_bytes_ == 0 || now - closed_at_ < kTrimLater) return;
  if (std::exchange(closed_bytes_, 0) >= kTrimBytes) service_.request_memory().RequestTrim();
}

void OpenConnections::LogShut(Clock::time_point now) {
  if (unlogged_ == 0 || now - logged_at_ < kLogInterval) return;
  logged_at_ = now;
  base::LogWarning("gRPC: shut ", std::exchange(unlogged_, 0),
                   " connections that had sent more than their calls account for, or made no call "
                   "while others waited; see docs/grpc.md#safety");
}

}  // namespace thermocline::rpc
