#include "server/http/rejected_connection.h"

#include <array>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/steady_timer.hpp>

#include "server/http/discard_pace.h"

namespace thermocline::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

class RejectedConnection : public std::enable_shared_from_this<RejectedConnection> {
 public:
  RejectedConnection(StreamSocket socket, std::shared_ptr<std::atomic<int>> waiting)
      : socket_(std::move(socket)),
        timer_(socket_.get_executor()),
        pause_(socket_.get_executor()),
        waiting_(std::move(waiting)) {}
  ~RejectedConnection() { --*waiting_; }

  auto executor() { return socket_.get_executor(); }
  void Start() {
    timer_.expires_after(kRejectedTime);
    timer_.async_wait([weak = weak_from_this()](error_code error) {
      const auto self = error ? nullptr : weak.lock();
      error_code ignored;
      if (self != nullptr) self->socket_.close(ignored);
    });
    Read();
  }

 private:
  void Read() {
    socket_.async_read_some(asio::buffer(dropped_),
                            [self = shared_from_this()](error_code error, std::size_t bytes) {
                              if (!error) return self->Wait(WaitToDiscard(bytes));
                              self->timer_.cancel();
                            });
  }
  void Wait(std::chrono::steady_clock::duration time) {
    pause_.expires_after(time);
    pause_.async_wait([self = shared_from_this()](error_code error) {
      if (!error) self->Read();
    });
  }

  StreamSocket socket_;
  asio::steady_timer timer_, pause_;
  std::array<char, 4096> dropped_;
  const std::shared_ptr<std::atomic<int>> waiting_;
};

}  // namespace

void RejectConnection(StreamSocket socket, std::string answer,
                      std::shared_ptr<std::atomic<int>> waiting) {
  error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(answer), ignored);
  socket.shutdown(StreamSocket::shutdown_send, ignored);
  if (++*waiting > kRejectedMax) {
    --*waiting;
    return;
  }
  const auto rejected = std::make_shared<RejectedConnection>(std::move(socket), std::move(waiting));
  asio::dispatch(rejected->executor(), [rejected] { rejected->Start(); });
}

}  // namespace thermocline::http
