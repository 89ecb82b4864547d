// The connections that gRPC's library has: how many there may be, and what each may send.
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

// A connection is unproven until a call of it was accepted. One without a running call makes way
// where all places are taken. Those of Unix sockets are counted only: the mode of the socket's file
// says who may send. Of the accepting thread.
class OpenConnections {
 public:
  OpenConnections(server::Service& service, ConnectionCredit& credit)
      : service_(service), credit_(credit) {}

  // False: one has just sent too much, the library has not yet let go of the calls of those that
  // did, or every place of an unproven connection is taken by one that has had no time to make a
  // call yet.
  bool HasRoomForUnproven();
  // False: there are server.connections_max connections, or server.connections_per_address_max of
  // this address. Shuts the oldest unproven connection if there is no place for another.
  bool Admit(int fd);
  // Shuts what has sent more than it may; to be called again after so many milliseconds, -1 = after
  // the next Admit.
  int Look();

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection {
    SharedSocket socket;
    Peer peer;
    std::unique_ptr<net::ConnectionPlace> place;
    Clock::time_point opened;
    std::uint64_t received = 0;     // bytes, when it was looked at last
    std::uint64_t unaccounted = 0;  // bytes, likewise
    std::uint64_t accounted = 0;    // bytes of calls, likewise
    std::uint64_t held = 0;         // bytes in the library, likewise
    bool proven = false, shut = false, makes_way = false;
    bool floods = false;  // sends more than calls, and leaves the answers unread
  };

  bool IsUnproven(const Connection& connection) const;
  // Others may need its place while no accepted call of it runs: first that of which none has run
  // for longest.
  void MakeWayIfIdle(Connection& connection, const Account& account);
  // nullptr: there is none.
  Connection* OldestUnproven();
  std::size_t UnprovenCount() const;
  // A place among all connections; nullptr: there is none.
  std::unique_ptr<net::ConnectionPlace> TakePlace(const std::string& network) const;
  void ForgetClosed();
  // Returns whether it has received anything since.
  bool LookAt(Connection& connection, Clock::time_point now);
  // True if gRPC's library holds more than `share` of what it may for calls.
  bool CallsHoldMoreThan(double share) const;
  // Shuts the proven (or the unproven) connections that hold most, until all of them hold at most
  // `bytes_max`.
  void ShutMostWhileAbove(bool proven, std::size_t bytes_max);
  // Has the heap given back when the library has let go of connections that closed.
  void TrimBehindClosed(Clock::time_point now);
  void ShutSender(Connection& connection);
  void Shut(Connection& connection);
  void TellShut(Clock::time_point now);

  server::Service& service_;
  ConnectionCredit& credit_;
  // Apart from HTTP's, so that calls which fall silent keep nobody out there.
  const std::shared_ptr<net::ConnectionCount> count_ = std::make_shared<net::ConnectionCount>();
  std::vector<Connection> open_;  // the oldest first
  Clock::time_point looked_at_all_{}, told_{}, paused_until_{};
  int untold_ = 0;                  // connections that were shut since the last line of the log
  std::uint64_t closed_bytes_ = 0;  // that closed connections had received, since the last trim
  Clock::time_point closed_at_{};   // the first of them
};

}  // namespace thermocline::rpc
