#include "loadtest/client/http_call.h"

#include "loadtest/client/run_clock.h"

namespace thermocline::loadtest {
namespace {

constexpr std::size_t kReadBytes = 32u << 10, kSlowReadBytes = 512;
constexpr int kSlowReceiveBufferBytes = 4096;
constexpr std::chrono::milliseconds kCompletePatience{250};

}  // namespace

HttpCall::HttpCall(asio::io_context& io, const HttpTarget& target, Setup setup, Events events)
    : target_(target),
      io_(io),
      setup_(std::move(setup)),
      events_(std::move(events)),
      timeout_(io),
      pause_(io),
      buffer_(setup_.read_pause_s > 0 ? kSlowReadBytes : kReadBytes) {}

void HttpCall::Start(std::shared_ptr<Wire> idle) {
  timeout_.expires_after(ToDuration(setup_.timeout_s));
  timeout_.async_wait([self = shared_from_this()](error_code error) {
    if (error) return;
    self->complete_
        ? self->Finish(OkStatus(), false)
        : self->Finish(base::DeadlineExceeded("no answer within ", self->setup_.timeout_s, " s"),
                       false);
  });
  wire_ = std::move(idle);
  reused_ = wire_ != nullptr;
  reused_ ? Send() : Connect();
}

void HttpCall::Connect() {
  WireOptions options = target_.wire_options();
  if (setup_.read_pause_s > 0) options.receive_buffer_bytes = kSlowReceiveBufferBytes;
  wire_ = std::make_shared<Wire>(io_, options);
  wire_->Connect(target_.endpoints, [self = shared_from_this()](error_code error, std::size_t) {
    if (self->ended_) return;
    if (error) {
      // Asio reports this error for a socket that could not be opened.
      const bool no_socket = error == asio::error::operation_aborted;
      return self->Finish(
          base::Unavailable("cannot connect to ", self->target_.options.url.authority(), ": ",
                            no_socket ? "no more sockets (see ulimit -n)" : error.message()),
          false);
    }
    self->Send();
  });
}

void HttpCall::Send() {
  wire_->Write(setup_.request, [self = shared_from_this()](error_code error, std::size_t) {
    if (self->ended_ || (error && self->TryAgain())) return;
    if (self->setup_.leave_when_sent) return self->End(base::Cancelled("the client left"));
    self->Read();  // even after an error: a server may reject a body before it has read it
  });
}

void HttpCall::Read() {
  wire_->ReadSome(buffer_, [self = shared_from_this()](error_code error, std::size_t bytes) {
    if (!self->ended_) self->OnRead(error, bytes);
  });
}

void HttpCall::OnRead(error_code error, std::size_t bytes) {
  if (error && !received_ && TryAgain()) return;
  received_ = received_ || bytes > 0;
  const bool end_of_stream =
      error == asio::error::eof || error == asio::ssl::error::stream_truncated;
  Status status = bytes > 0 ? parser_.Feed({buffer_.data(), bytes}) : OkStatus();
  if (status.ok() && error) {
    status = !received_      ? base::Unavailable("the connection ended without an answer")
             : end_of_stream ? parser_.End()
                             : base::Unavailable("the connection broke: ", error.message());
  }
  Deliver();
  if (ended_) return;
  if (!status.ok()) return Finish(complete_ ? OkStatus() : status, false);
  if (parser_.done()) return Finish(OkStatus(), !error && parser_.keep_alive());
  if (error) return Finish(OkStatus(), false);
  setup_.read_pause_s > 0 && !complete_ ? Pause() : Read();
}

void HttpCall::Deliver() {
  if (!header_told_ && parser_.header_done()) {
    header_told_ = true;
    events_.on_header(parser_);
  }
  if (ended_ || !header_told_) return;
  if (const std::string body = parser_.TakeBody(); !body.empty() && !complete_)
    events_.on_body(body);
}

void HttpCall::Pause() {
  pause_.expires_after(ToDuration(setup_.read_pause_s));
  pause_.async_wait([self = shared_from_this()](error_code error) {
    if (!error && !self->ended_) self->Read();
  });
}

void HttpCall::Complete() {
  complete_ = true;
  timeout_.expires_after(kCompletePatience);  // ends the current wait without calling Finish
  timeout_.async_wait([self = shared_from_this()](error_code error) {
    if (!error) self->Finish(OkStatus(), false);
  });
}

bool HttpCall::TryAgain() {
  if (!reused_ || received_) return false;
  reused_ = false;
  wire_->Close();
  Connect();
  return true;
}

void HttpCall::Finish(const Status& status, bool reusable) {
  if (std::exchange(ended_, true)) return;
  timeout_.cancel();
  pause_.cancel();
  if (!reusable && wire_ != nullptr) wire_->Close();
  const Events events = std::exchange(events_, {});  // they may own this call's owner
  events.on_end(status, reusable ? std::move(wire_) : nullptr);
}

}  // namespace thermocline::loadtest
