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

// Runs on its executor, which runs one handler at a time; Start is called before it runs.
class Acceptor : public std::enable_shared_from_this<Acceptor> {
 public:
  // Receives and owns an accepted socket, which is non-blocking, even if it throws.
  using Taken = std::function<void(int socket)>;

  // `taken` must not own the acceptor. Throws if the socket cannot be watched.
  Acceptor(const boost::asio::any_io_executor& executor, ListeningSocket socket, Taken taken);

  void Start() { Accept(); }
  // Leaves connections in the kernel's queue until Resume.
  void Pause();
  void Resume();
  // Stops accepting and closes the socket.
  void Close();

  const ListeningSocket& socket() const { return socket_; }

 private:
  void Accept();
  void TakeNext();
  // Goes on after any error.
  void AcceptNext();
  void AcceptLater(const std::string& why);

  ListeningSocket socket_;
  const Taken taken_;
  boost::asio::posix::stream_descriptor readable_;  // watches socket_, which it does not close
  boost::asio::steady_timer retry_;
  bool waiting_ = false;  // for a connection, or for a retry
  bool paused_ = false, closed_ = false;
  bool told_ = false;  // the failure was logged
};

}  // namespace thermocline::net
