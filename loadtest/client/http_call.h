// One HTTP request and its response, on a new or a reused connection.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/steady_timer.hpp>

#include "loadtest/client/http_parser.h"
#include "loadtest/client/http_target.h"
#include "loadtest/client/wire.h"

namespace thermocline::loadtest {

// I/O thread only. Lives until on_end has returned.
class HttpCall : public std::enable_shared_from_this<HttpCall> {
 public:
  struct Events {
    std::function<void(const HttpParser&)> on_header;
    std::function<void(std::string_view)> on_body;
    // Called once, last. The wire is passed if another request can use it. Unavailable: no
    // connection, or it broke; DeadlineExceeded; DataLoss: malformed HTTP; Cancelled: by End.
    std::function<void(const Status&, std::shared_ptr<Wire>)> on_end;
  };
  struct Setup {
    std::string request = {};  // header and body
    double timeout_s = 0;      // from Start to the end
    double read_pause_s = 0;   // between reads; above 0, reads are small
    bool leave_when_sent = false;
  };

  HttpCall(asio::io_context& io, const HttpTarget& target, Setup setup, Events events);
  // `idle`: an open connection; nullptr: a new one.
  void Start(std::shared_ptr<Wire> idle);
  // Disconnects; on_end gets `status`. Does nothing if the call has ended.
  void End(const Status& status) { Finish(status, false); }
  // The caller has the complete response; the rest of the stream gets a short time to arrive, so
  // that the connection can be reused.
  void Complete();

 private:
  void Connect();
  void Send();
  void Read();
  void OnRead(error_code error, std::size_t bytes);
  void Pause();
  void Deliver();
  // Retries once on a new connection, since the server may have closed an idle one.
  bool TryAgain();
  void Finish(const Status& status, bool reusable);

  const HttpTarget& target_;
  asio::io_context& io_;
  const Setup setup_;
  Events events_;
  asio::steady_timer timeout_, pause_;
  HttpParser parser_;
  std::shared_ptr<Wire> wire_;
  std::vector<char> buffer_;
  bool reused_ = false, ended_ = false, header_told_ = false, received_ = false, complete_ = false;
};

}  // namespace thermocline::loadtest
