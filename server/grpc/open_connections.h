// The connections inside gRPC's library, and their limits on number and bytes.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/core/service.h"
#include "server/grpc/connection_credit.h"
#include "server/grpc/shared_socket.h"
#include "server/net/connection_count.h"

namespace thermocline::rpc {

// A connection is unproven until one of its calls was accepted. If all places are taken, a
// connection without a running call is closed for a new one. Connections of Unix sockets are only
// counted: the socket file's permissions decide who may send. Used on the accepting thread.
class OpenConnections {
 public:
  OpenConnections(server::Service& service, ConnectionCredit& credit)
      : service_(service), credit_(credit) {}

  // False: a connection has just sent too much, the library has not yet let go of the calls of
  // those that did, or all unproven connections are so new that they had no time for a call yet.
  bool HasRoomForUnproven();
  // False: there are server.connections_max connections, or server.connections_per_address_max of
  // this address. Shuts the oldest unproven connection to make room.
  bool Admit(int fd);
  // Shuts connections that exceed their limits. Must be called again after the returned number of
  // milliseconds; -1 = after the next Admit.
  int Check();

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection {
    SharedSocket socket;
    Peer peer;
    std::unique_ptr<net::ConnectionPlace> place;
    Clock::time_point opened;
    std::uint64_t received = 0;     // bytes, at the last check
    std::uint64_t unaccounted = 0;  // bytes, at the last check
    std::uint64_t accounted = 0;    // bytes of calls, at the last check
    std::uint64_t held = 0;         // bytes in the library, at the last check
    bool proven = false, shut = false, makes_way = false;
    bool floods = false;  // sends unaccounted bytes and leaves the answers unread
  };

  bool IsUnproven(const Connection& connection) const;
  // Offers the connection's place to others while it runs no accepted call; the one idle for
  // longest is shut first.
  void MakeWayIfIdle(Connection& connection, const Account& account);
  // nullptr if there is none.
  Connection* OldestUnproven();
  std::size_t UnprovenCount() const;
  // A place within the limits on connections; nullptr if there is none.
  std::unique_ptr<net::ConnectionPlace> TakePlace(const std::string& network) const;
  void RemoveClosed();
  // Returns true if the connection has received bytes since the last check.
  bool CheckConnection(Connection& connection, Clock::time_point now);
  // True if gRPC's library holds more than `share` of what it may for calls.
  bool CallsHoldMoreThan(double share) const;
  // Shuts the proven (or the unproven) connections that hold most, until together they hold at most
  // `bytes_max`.
  void ShutMostWhileAbove(bool proven, std::size_t bytes_max);
  // Shuts each proven connection that holds more than `bytes_max`.
  void ShutAbove(std::uint64_t bytes_max);
  // Requests a heap trim when the library has freed closed connections.
  void TrimBehindClosed(Clock::time_point now);
  void ShutSender(Connection& connection);
  void Shut(Connection& connection);
  void LogShut(Clock::time_point now);

  server::Service& service_;
  ConnectionCredit& credit_;
  // Separate from HTTP's count, so that idle calls do not keep HTTP clients out.
  const std::shared_ptr<net::ConnectionCount> count_ = std::make_shared<net::ConnectionCount>();
  std::vector<Connection> open_;  // the oldest first
  Clock::time_point all_checked_at_{}, logged_at_{}, paused_until_{};
  int unlogged_ = 0;                // connections that were shut since the last log line
  std::uint64_t closed_bytes_ = 0;  // received by connections closed since the last trim
  Clock::time_point closed_at_{};   // when the first of them closed
};

}  // namespace thermocline::rpc
