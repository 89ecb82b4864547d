#include "server/http/session.h"

#include <algorithm>
#include <random>

#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>

#include "engine/base/log.h"

namespace thermocline::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace beast_http = boost::beast::http;
using boost::asio::ip::tcp;

constexpr std::size_t kHeaderBytesMax = 32 << 10;
constexpr std::size_t kEarlyBytesMax = 64
                                       << 10;  // of requests sent before the last answer is whole

double Seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// The client's own id if it is sane, else a new one.
std::string RequestId(const HttpRequest& request) {
  const std::string given(request["x-request-id"]);
  const bool sane =
      !given.empty() && given.size() <= 128 &&
      std::all_of(given.begin(), given.end(), [](char c) { return c > 0x20 && c < 0x7F; });
  if (sane) return given;
  thread_local std::mt19937_64 generator{std::random_device{}()};
  char text[40];
  std::snprintf(text, sizeof(text), "req_%016llx", static_cast<unsigned long long>(generator()));
  return text;
}

std::string Chunk(const std::string& data) {
  char size[24];
  std::snprintf(size, sizeof(size), "%zx\r\n", data.size());
  return size + data + "\r\n";
}

}  // namespace

Session::Session(tcp::socket socket, server::Service& service, std::function<void()> on_end)
    : stream_(std::move(socket)), service_(service), on_end_(std::move(on_end)) {
  TokenChannel::ReserveBuffers(update_);
}

Session::~Session() {
  if (channel_ != nullptr) ClientLeft();
  Release();
  on_end_();
}

void Session::Start() {
  ErrorCode ignored;
  stream_.socket().set_option(tcp::no_delay(true), ignored);
  asio::dispatch(stream_.get_executor(),
                 beast::bind_front_handler(&Session::ReadRequest, shared_from_this()));
}

void Session::ReadRequest() {
  parser_.emplace();
  parser_->header_limit(kHeaderBytesMax);
  parser_->body_limit(static_cast<std::uint64_t>(service_.config().body_bytes_max));
  if (buffer_.size() > 0) return ReadHeader();
  // Between requests a connection may be idle for long; once a byte is there, the rest has to
  // follow soon.
  stream_.expires_after(std::chrono::seconds(service_.config().idle_timeout_s));
  stream_.async_read_some(buffer_.prepare(4096),
                          [self = shared_from_this()](ErrorCode error, std::size_t bytes) {
                            if (error) return self->Close();
                            self->buffer_.commit(bytes);
                            self->ReadHeader();
                          });
}

void Session::ReadHeader() {
  arrived_ = Clock::now();
  Hold();
  stream_.expires_after(std::chrono::seconds(service_.config().read_timeout_s));
  beast_http::async_read_header(
      stream_, buffer_, *parser_,
      [self = shared_from_this()](ErrorCode error, std::size_t) { self->OnHeader(error); });
}

void Session::OnHeader(ErrorCode error) {
  if (error) return RefuseUnreadable(error);
  const auto& header = parser_->get();
  const auto coding = header[beast_http::field::transfer_encoding];
  if (!coding.empty() && !beast::iequals(coding, "chunked")) {
    // Taken for "no body" its bytes would be read as the next request.
    return RefuseUnreadable(beast_http::error::bad_transfer_encoding);
  }
  stream_.expires_after(std::chrono::seconds(service_.config().read_timeout_s));
  const auto read_body = [self = shared_from_this()] {
    beast_http::async_read(self->stream_, self->buffer_, *self->parser_,
                           [self](ErrorCode failed, std::size_t) { self->OnRequest(failed); });
  };
  if (beast::iequals(header[beast_http::field::expect], "100-continue")) {
    in_flight_ = "HTTP/1.1 100 Continue\r\n\r\n";
    asio::async_write(stream_, asio::buffer(in_flight_),
                      [self = shared_from_this(), read_body](ErrorCode failed, std::size_t) {
                        if (!failed) read_body();
                      });
    return;
  }
  read_body();
}

void Session::RefuseUnreadable(ErrorCode error) {
  head_ = {.version = 11, .keep_alive = false, .request_id = RequestId({})};
  method_ = "?";
  route_ = "unreadable";
  head_only_ = false;
  openai::ApiError refusal{.http_status = 400,
                           .type = "invalid_request_error",
                           .code = "bad_request",
                           .param = "",
                           .message = "the HTTP request is malformed: " + error.message(),
                           .details = {}};
  if (error == beast_http::error::body_limit) {
    refusal.http_status = 413;
    refusal.code = "body_too_large";
    refusal.message = StrCat("the body is larger than ", service_.config().body_bytes_max,
                             " bytes (server.body_bytes_max)");
  } else if (error == beast_http::error::header_limit) {
    refusal.http_status = 431;
    refusal.message = StrCat("the headers are larger than ", kHeaderBytesMax, " bytes");
  } else if (error.category() !=
                 beast_http::make_error_code(beast_http::error::bad_method).category() ||
             error == beast_http::error::end_of_stream ||
             error == beast_http::error::partial_message) {
    return Close();  // the client left, or fell silent: nobody to answer
  }
  Respond(ErrorResponse(head_, refusal));
}

void Session::OnRequest(ErrorCode error) {
  if (error) return RefuseUnreadable(error);
  const HttpRequest& request = parser_->get();
  method_ = std::string(request.method_string());
  head_only_ = request.method() == beast_http::verb::head;
  head_ = {.version = request.version(),
           .keep_alive = request.version() >= 11 && request.keep_alive() &&
                         service_.state() != server::ServiceState::kDraining,
           .request_id = RequestId(request)};
  Routed routed = RouteOrFail(request);
  route_ = std::move(routed.route);
  if (auto* plan = std::get_if<GenerationPlan>(&routed.action)) {
    StartGeneration(std::move(*plan));
  } else {
    Respond(std::get<HttpResponse>(std::move(routed.action)));
  }
}

// What a request makes libraries or the allocator throw ends that request, not the daemon.
Routed Session::RouteOrFail(const HttpRequest& request) {
  try {
    return RouteRequest(service_, request, head_);
  } catch (const std::exception& error) {
    base::LogError("id=", head_.request_id, ": ", error.what());
    return {.route = "failed",
            .action = ErrorResponse(head_, openai::FromStatus(base::Internal("")))};
  }
}

void Session::Respond(HttpResponse response) {
  LogAccess(static_cast<int>(response.result_int()));
  response_ = std::move(response);
  serializer_.emplace(response_);
  if (head_only_) serializer_->split(true);
  stream_.expires_after(std::chrono::seconds(service_.config().write_timeout_s));
  const auto done = [self = shared_from_this()](ErrorCode error, std::size_t) {
    self->Release();
    if (error || !self->response_.keep_alive()) return self->Close();
    self->NextRequest();
  };
  if (head_only_) {
    beast_http::async_write_header(stream_, *serializer_, done);
  } else {
    beast_http::async_write(stream_, *serializer_, done);
  }
}

void Session::Close() {
  Release();
  ErrorCode ignored;
  stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  stream_.close();
}

void Session::LogAccess(int status) {
  service_.metrics().RequestEnded(route_, status);
  base::LogInfo(method_, " ", route_, " ", status, " ",
                static_cast<std::int64_t>(Seconds(Clock::now() - arrived_) * 1000),
                "ms id=", head_.request_id);
}

void Session::StartGeneration(GenerationPlan plan) {
  answer_ = std::move(plan.answer);
  streaming_ = plan.stream;
  headers_sent_ = last_queued_ = ended_ = false;
  text_.clear();
  outgoing_.clear();
  last_token_at_.reset();
  // Called on the decode thread: only posts. Holds the session until the generation ends.
  auto on_ready = [self = shared_from_this(), executor = stream_.get_executor()] {
    asio::post(executor, [self] { self->OnTokens(); });
  };
  auto channel = service_.engine()->Submit(std::move(plan.request), std::move(on_ready));
  if (!channel.ok()) return Respond(RefusalResponse(service_, head_, channel.status()));
  channel_ = *std::move(channel);
  stream_.expires_never();
  WatchForDeparture();
}

// While a generation runs, reading is how we learn that the client has left. What it sends early
// (the next request) waits in buffer_.
void Session::WatchForDeparture() {
  if (buffer_.size() >= kEarlyBytesMax) return;  // a write will have to fail instead
  watching_ = true;
  stream_.socket().async_read_some(buffer_.prepare(4096),
                                   [self = shared_from_this()](ErrorCode error, std::size_t bytes) {
                                     self->watching_ = false;
                                     if (!error) self->buffer_.commit(bytes);
                                     if (self->next_after_watch_) {
                                       self->next_after_watch_ = false;
                                       if (error && error != asio::error::operation_aborted)
                                         return self->Close();
                                       return self->ReadRequest();
                                     }
                                     if (self->channel_ == nullptr) return;
                                     if (!error) return self->WatchForDeparture();
                                     self->ClientLeft();
                                     self->Close();
                                   });
}

// The next request of this connection, once nothing else reads from it.
void Session::NextRequest() {
  if (!watching_) return ReadRequest();
  next_after_watch_ = true;
  ErrorCode ignored;
  stream_.socket().cancel(ignored);
}

void Session::ClientLeft() {
  if (channel_ == nullptr) return;
  if (ended_) {  // the answer was complete, only its last bytes were not taken
    channel_.reset();
    return Release();
  }
  channel_->Cancel();
  service_.metrics().RequestCancelled(last_token_at_.has_value() ? "decode" : "prefill");
  LogAccess(499);
  channel_.reset();
  Release();
}

void Session::Hold() {
  if (!active_) ++service_.active_requests;
  active_ = true;
}

void Session::Release() {
  if (active_) --service_.active_requests;
  active_ = false;
}

void Session::OnTokens() {
  if (channel_ == nullptr || !channel_->Take(update_)) return;
  ObserveTokens(update_);
  if (streaming_) {
    StreamUpdate(update_);
  } else {
    text_ += update_.text;
  }
  if (update_.finished) FinishGeneration(update_);
}

void Session::ObserveTokens(const TokenChannel::Update& update) {
  for (const Clock::time_point made_at : update.times) {
    if (last_token_at_.has_value()) {
      service_.metrics().InterToken(Seconds(made_at - *last_token_at_));
    } else {
      service_.metrics().FirstToken(Seconds(made_at - arrived_));
    }
    last_token_at_ = made_at;
  }
}

void Session::StreamUpdate(const TokenChannel::Update& update) {
  std::string events;
  if (!headers_sent_) {
    // An answer that never began can still be refused with a status of its own.
    if (update.finished && update.tokens.empty() && update.reason != FinishReason::kStop) return;
    headers_sent_ = true;
    outgoing_ = StrCat(
        "HTTP/1.1 200 OK\r\nServer: thermocline\r\nContent-Type: "
        "text/event-stream\r\nCache-Control: no-cache\r\n"
        "X-Accel-Buffering: no\r\n",
        head_.version >= 11 ? "Transfer-Encoding: chunked\r\n" : "",
        "x-request-id: ", head_.request_id, "\r\n", head_.keep_alive ? "" : "Connection: close\r\n",
        "\r\n");
    events = openai::RoleEvent(answer_);
  }
  if (!update.text.empty()) events += openai::ContentEvent(answer_, update.text);
  if (!events.empty()) WriteStream(std::move(events), false);
}

void Session::FinishGeneration(const TokenChannel::Update& update) {
  ended_ = true;
  const double total_s = Seconds(Clock::now() - arrived_);
  service_.metrics().RequestFinished(update.reason, update.usage, total_s);
  service_.RequestTook(total_s);
  const bool complete =
      update.reason == FinishReason::kStop || update.reason == FinishReason::kLength;
  const Status failure = update.reason == FinishReason::kError
                             ? update.error
                             : base::Unavailable("the server is shutting down");
  if (update.reason == FinishReason::kError) {
    service_.metrics().RequestFailed(failure.code());
    base::LogError("id=", head_.request_id, ": ", failure.message());
  }
  if (streaming_ && headers_sent_) {
    std::string events;
    if (complete) {
      events = openai::FinishEvent(answer_, update.reason, update.usage);
      if (answer_.include_usage) events += openai::UsageEvent(answer_, update.usage);
      events += openai::kDoneEvent;
    } else {
      head_.keep_alive = false;
      events = openai::DataEvent(openai::FromStatus(failure).ToJson());
    }
    LogAccess(200);
    WriteStream(std::move(events), true);
    return;
  }
  channel_.reset();
  if (update.reason == FinishReason::kError) {
    const openai::ApiError error = openai::FromStatus(failure);
    const bool wait = error.http_status == 503;
    return Respond(ErrorResponse(head_, error, wait ? service_.RetryAfterSeconds() : 0));
  }
  if (!complete) return Respond(RefusalResponse(service_, head_, failure));
  Respond(
      JsonResponse(head_, 200, openai::WholeAnswer(answer_, text_, update.reason, update.usage)));
}

void Session::WriteStream(std::string events, bool last) {
  const bool chunked = head_.version >= 11;  // HTTP/1.0 knows the end by the end of the connection
  outgoing_ += chunked ? Chunk(events) : events;
  if (last && chunked) outgoing_ += "0\r\n\r\n";
  last_queued_ = last_queued_ || last;
  if (!writing_) FlushStream();
}

void Session::FlushStream() {
  writing_ = true;
  in_flight_.swap(outgoing_);
  outgoing_.clear();
  stream_.expires_after(std::chrono::seconds(service_.config().write_timeout_s));
  asio::async_write(
      stream_, asio::buffer(in_flight_),
      [self = shared_from_this()](ErrorCode error, std::size_t) { self->OnStreamWritten(error); });
}

void Session::OnStreamWritten(ErrorCode error) {
  writing_ = false;
  stream_.expires_never();
  if (error) {
    ClientLeft();
    return Close();
  }
  if (!outgoing_.empty()) return FlushStream();
  if (last_queued_) StreamDone();
}

void Session::StreamDone() {
  if (channel_ == nullptr) return;
  channel_.reset();
  Release();
  if (!head_.keep_alive) return Close();
  NextRequest();
}

}  // namespace thermocline::http
