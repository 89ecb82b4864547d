// Accepts the connections of one listening socket.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "server/net/listening_socket.h"

namespace thermocline::net {

// Runs on its executor, on which one handler runs at a time; Start is called before it runs.
class Acceptor : public std::enable_shared_from_this<Acceptor> {
 public:
  // Gets an accepted socket, which does not block, and owns it, also if it throws.
  using Taken = std::function<void(int socket)>;

  // `taken` must not hold what holds the acceptor. Throws where the socket cannot be waited for.
  Acceptor(const boost::asio::any_io_executor& executor, ListeningSocket socket, Taken taken);

  void Start() { Accept(); }
  // Connections wait in the system's queue until Resume.
  void Pause();
  void Resume();
  // Stops accepting and closes the socket.
  void Close();

  const ListeningSocket& socket() const { return socket_; }

 private:
  void Accept();
  void TakeNext();
  // Whatever happens, it goes on.
  void AcceptNext();
  void AcceptLater(const std::string& why);

  ListeningSocket socket_;
  const Taken taken_;
  boost::asio::posix::stream_descriptor readable_;  // of socket_, which it does not close
  boost::asio::steady_timer retry_;
  bool waiting_ = false;  // for a connection, or to try again
  bool paused_ = false, closed_ = false;
  bool told_ = false;  // that nothing can be accepted
};

}  // namespace thermocline::net
