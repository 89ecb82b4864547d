#include "server/http/session.h"

#include <algorithm>
#include <iterator>
#include <random>

#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>

#include "engine/base/log.h"
#include "server/http/refusal.h"
#include "server/http/trace_context.h"

namespace thermocline::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace beast_http = boost::beast::http;

constexpr std::size_t kHeaderBytesMax = 32 << 10;
constexpr std::chrono::milliseconds kKeepAliveRetry{100};  // while a write is in progress
constexpr std::ptrdiff_t kHeadersMax = 100;
constexpr std::size_t kTargetBytesMax = 8 << 10;
constexpr std::size_t kEarlyBytesMax = 64 << 10;     // sent before the last answer is whole
constexpr std::size_t kOutgoingBytesMax = 64 << 10;  // that the client has not read
constexpr std::size_t kReadBytes = 4096, kWatchBytes = 512;
constexpr std::chrono::seconds kLinger{2};

unsigned long long RandomNumber() {
  thread_local std::mt19937_64 generator{std::random_device{}()};
  return generator();
}

// The client's own id if it is sane, else a new one.
std::string RequestId(const HttpRequest& request) {
  const std::string given(request["x-request-id"]);
  const bool sane =
      !given.empty() && given.size() <= 128 &&
      std::all_of(given.begin(), given.end(), [](char c) { return c > 0x20 && c < 0x7F; });
  if (sane) return given;
  char text[40];
  std::snprintf(text, sizeof(text), "req_%016llx", RandomNumber());
  return text;
}

std::string Chunk(const std::string& data) {
  char size[24];
  std::snprintf(size, sizeof(size), "%zx\r\n", data.size());
  return size + data + "\r\n";
}

bool HasBody(const HttpRequest& header) { return header.chunked() || header.has_content_length(); }

}  // namespace

Session::Session(std::shared_ptr<Connection> connection, server::Service& service,
                 std::function<void()> on_end)
    : connection_(std::move(connection)),
      keep_alive_timer_(connection_->get_executor()),
      service_(service),
      on_end_(std::move(on_end)) {}

Session::~Session() {
  ClientLeft();
  Release();
  on_end_();
}

void Session::Start() {
  asio::dispatch(connection_->get_executor(), [self = shared_from_this()] {
    self->connection_->ExpireAfter(
        std::chrono::seconds(self->service_.live()->config.read_timeout_s));
    self->connection_->AsyncHandshake([self](ErrorCode error) {
      if (error) return self->Close();
      self->ReadRequest();
    });
  });
}

void Session::ReadRequest() {
  if (buffer_.size() > 0) return ReadHeader();
  // Between requests a connection may be idle for long; once a byte is there, the rest has to
  // follow soon.
  connection_->ExpireAfter(std::chrono::seconds(service_.live()->config.idle_timeout_s));
  connection_->async_read_some(buffer_.prepare(kReadBytes),
                               [self = shared_from_this()](ErrorCode error, std::size_t bytes) {
                                 if (error) return self->Close();
                                 self->buffer_.commit(bytes);
                                 self->ReadHeader();
                               });
}

void Session::ReadHeader() {
  arrived_ = Clock::now();
  Hold();
  live_ = service_.live();
  route_ = "unreadable";
  method_ = "?";
  trace_id_.clear();
  caller_ = {.tenant = connection_->peer().address, .priority_max = 0};
  head_ = {.version = 11, .keep_alive = false, .request_id = RequestId({})};
  head_only_ = unread_ = false;
  body_bytes_ = 0;
  parser_.emplace();
  parser_->header_limit(kHeaderBytesMax);
  parser_->body_limit(static_cast<std::uint64_t>(live_->config.body_bytes_max));
  connection_->ExpireAfter(std::chrono::seconds(live_->config.read_timeout_s));
  beast_http::async_read_header(
      *connection_, buffer_, *parser_,
      [self = shared_from_this()](ErrorCode error, std::size_t) { self->OnHeader(error); });
}

void Session::OnHeader(ErrorCode error) {
  if (error) return RefuseUnreadable(error);
  const HttpRequest& header = parser_->get();
  method_ = std::string(header.method_string());
  head_only_ = header.method() == beast_http::verb::head;
  head_ = {.version = header.version(),
           .keep_alive = header.version() >= 11 && header.keep_alive() &&
                         service_.state() != server::ServiceState::kDraining,
           .request_id = RequestId(header),
           .arrived = arrived_,
           .cors_origin = AllowedOrigin(*live_, connection_->peer(), header)};
  if (const auto trace = ParseTraceparent(header["traceparent"])) {
    trace_id_ = trace->trace_id;
    head_.traceparent = MakeTraceparent(*trace, RandomNumber());
  }
  if (auto refusal = CheckHeader()) return RefuseHeader(*std::move(refusal));
  if (!beast::iequals(header[beast_http::field::expect], "100-continue")) return ReadBody();
  in_flight_ = "HTTP/1.1 100 Continue\r\n\r\n";
  asio::async_write(*connection_, asio::buffer(in_flight_),
                    [self = shared_from_this()](ErrorCode failed, std::size_t) {
                      if (failed) return self->Close();
                      self->in_flight_.clear();
                      self->ReadBody();
                    });
}

// A body is read only for those who may send one.
std::optional<HttpResponse> Session::CheckHeader() {
  const HttpRequest& header = parser_->get();
  const auto refuse = [this](int status, const std::string& message) {
    head_.keep_alive = false;
    return ErrorResponse(head_, openai::ClientError(status, "bad_request", message));
  };
  const auto coding = header[beast_http::field::transfer_encoding];
  // Taken for "no body" its bytes would be read as the next request.
  if (!coding.empty() && !beast::iequals(coding, "chunked"))
    return refuse(400, "the only Transfer-Encoding there is here is chunked");
  if (std::distance(header.begin(), header.end()) > kHeadersMax)
    return refuse(431, StrCat("the request has more than ", kHeadersMax, " headers"));
  if (header.target().size() > kTargetBytesMax)
    return refuse(414, StrCat("the request target is longer than ", kTargetBytesMax, " bytes"));
  auto passed = PassGate(*live_, connection_->peer(), header, head_);
  if (auto* response = std::get_if<HttpResponse>(&passed)) {
    route_ = "refused";
    if (response->result_int() >= 400) service_.metrics().RequestRejected("auth");
    return std::move(*response);
  }
  caller_ = std::get<Caller>(std::move(passed));
  return std::nullopt;
}

void Session::ReadBody() {
  beast_http::async_read(
      *connection_, buffer_, *parser_,
      [self = shared_from_this()](ErrorCode error, std::size_t) { self->OnRequest(error); });
}

void Session::RefuseHeader(HttpResponse response) {
  unread_ = HasBody(parser_->get()) || !head_.keep_alive;
  if (unread_) response.keep_alive(false);
  Respond(std::move(response));
}

void Session::RefuseUnreadable(ErrorCode error) {
  head_.keep_alive = false;
  openai::ApiError refusal{.http_status = 400,
                           .type = "invalid_request_error",
                           .code = "bad_request",
                           .param = "",
                           .message = "the HTTP request is malformed: " + error.message(),
                           .details = {}};
  if (error == beast_http::error::body_limit) {
    refusal.http_status = 413;
    refusal.code = "body_too_large";
    refusal.message = StrCat("the body is larger than ", live_->config.body_bytes_max,
                             " bytes (server.body_bytes_max)");
  } else if (error == beast_http::error::header_limit) {
    refusal.http_status = 431;
    refusal.message = StrCat("the headers are larger than ", kHeaderBytesMax, " bytes");
  } else if (error == beast_http::error::buffer_overflow) {
    refusal.http_status = 431;
    refusal.message =
        StrCat("a chunk's extension, or the trailers, are larger than ", kBufferBytesMax, " bytes");
  } else if (error == asio::error::operation_aborted && connection_->expired()) {
    refusal.http_status = 408;
    refusal.code = "request_timeout";
    refusal.message = StrCat("the request did not arrive within ", live_->config.read_timeout_s,
                             " s (server.read_timeout_s)");
  } else if (error.category() !=
                 beast_http::make_error_code(beast_http::error::bad_method).category() ||
             error == beast_http::error::end_of_stream ||
             error == beast_http::error::partial_message) {
    return Close();  // the client left: nobody to answer
  }
  unread_ = true;
  Respond(ErrorResponse(head_, refusal));
}

void Session::OnRequest(ErrorCode error) {
  if (error) return RefuseUnreadable(error);
  if (parser_->get().body().size() <= server::kBytesAtOnceMax)
    return OnRouted(RouteOrFail(parser_->get()));
  connection_->ExpireNever();  // the client has done its part
  const auto routed = std::make_shared<Routed>();
  service_.workers().Post(
      connection_->get_executor(),
      [self = shared_from_this(), routed] { *routed = self->RouteOrFail(self->parser_->get()); },
      [self = shared_from_this(), routed] { self->OnRouted(std::move(*routed)); });
}

void Session::OnRouted(Routed routed) {
  parser_.reset();
  route_ = std::move(routed.route);
  Guarded([&] {
    if (auto* plan = std::get_if<GenerationPlan>(&routed.action)) {
      StartGeneration(std::move(*plan));
    } else {
      Respond(std::get<HttpResponse>(std::move(routed.action)));
    }
  });
}

template <typename Step>
void Session::Guarded(Step step) {
  try {
    step();
  } catch (const std::exception& error) {
    base::LogError("id=", head_.request_id, ": ", error.what());
    if (answer_ != nullptr) answer_->Leave(CancelCause::kDisconnect);
    answer_.reset();
    Close();
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
  parser_.reset();
  response_ = std::move(response);
  body_bytes_ = head_only_ ? 0 : response_.body().size();
  LogAccess(static_cast<int>(response_.result_int()));
  serializer_.emplace(response_);
  if (head_only_) serializer_->split(true);
  connection_->ExpireWhenStuck(std::chrono::seconds(live_->config.write_timeout_s));
  const auto done = [self = shared_from_this()](ErrorCode error, std::size_t) {
    self->OnResponded(error);
  };
  if (head_only_) {
    beast_http::async_write_header(*connection_, *serializer_, done);
  } else {
    beast_http::async_write(*connection_, *serializer_, done);
  }
}

void Session::OnResponded(ErrorCode error) {
  const bool goes_on = response_.keep_alive();
  serializer_.reset();
  response_ = {};
  Release();
  if (error) return Close();
  if (goes_on) return NextRequest();
  if (unread_) return Linger();
  Close();
}

// A socket closed with bytes unread resets the connection, and the answer may be lost with it.
void Session::Linger() {
  if (unread_) {
    unread_ = false;
    connection_->ShutdownSend();
    connection_->ExpireAfter(kLinger);
  }
  if (connection_->expired()) return Close();
  buffer_.clear();
  connection_->async_read_some(buffer_.prepare(kReadBytes),
                               [self = shared_from_this()](ErrorCode error, std::size_t) {
                                 if (error) return self->Close();
                                 self->Linger();
                               });
}

void Session::Close() {
  Release();
  connection_->Close();
}

void Session::LogAccess(int status) {
  service_.metrics().RequestEnded(route_, status);
  if (!live_->config.log_access) return;
  const double ms = std::chrono::duration<double, std::milli>(Clock::now() - arrived_).count();
  Json::Object fields = {{"method", method_},
                         {"route", route_},
                         {"status", status},
                         {"bytes", body_bytes_},
                         {"ms", static_cast<std::int64_t>(ms)},
                         {"tenant", caller_.tenant},
                         {"id", head_.request_id}};
  if (!trace_id_.empty()) fields.emplace_back("trace", trace_id_);
  if (answer_ != nullptr) {
    fields.emplace_back("prompt_tokens", answer_->generation().prompt_tokens());
    fields.emplace_back("completion_tokens", answer_->generation().tokens());
  }
  base::Log(base::LogLevel::kInfo, "access", fields);
}

void Session::StartGeneration(GenerationPlan plan) {
  headers_sent_ = last_queued_ = false;
  outgoing_.clear();
  for (Request& request : plan.requests) {
    request.tenant = caller_.tenant;
    request.priority = std::min(request.priority, caller_.priority_max);
  }
  // Called on the decode thread: only posts. Holds the session until the generation ends.
  auto on_ready = [self = shared_from_this(), executor = connection_->get_executor()] {
    asio::post(executor, [self] { self->Guarded([&] { self->TakeAnswer(); }); });
  };
  auto answer = Answer::Start(service_, head_, std::move(plan), arrived_, std::move(on_ready));
  if (!answer.ok()) return Respond(RefusalResponse(service_, head_, answer.status()));
  answer_ = *std::move(answer);
  written_at_ = arrived_;
  KeepAlive();
  buffer_.shrink_to_fit();
  connection_->ExpireNever();
  WatchForDeparture();
}

// While a generation runs, reading is how we learn that the client has left. What it sends early
// (the next request) waits in buffer_.
void Session::WatchForDeparture() {
  if (buffer_.size() >= kEarlyBytesMax) return;  // a write will have to fail instead
  watching_ = true;
  connection_->async_read_some(buffer_.prepare(kWatchBytes),
                               [self = shared_from_this()](ErrorCode error, std::size_t bytes) {
                                 self->watching_ = false;
                                 if (!error) self->buffer_.commit(bytes);
                                 self->OnWatched(error);
                               });
}

void Session::OnWatched(ErrorCode error) {
  if (next_after_watch_) {
    next_after_watch_ = false;
    const bool cancelled = error == asio::error::operation_aborted && buffer_.size() > 0;
    return error && !(cancelled && !connection_->expired()) ? Close() : ReadHeader();
  }
  if (answer_ != nullptr && error) {
    ClientLeft();
    return Close();
  }
  if (answer_ != nullptr) return WatchForDeparture();
  if (error) client_left_ = true;  // an answer that is no stream is being written
}

// The next request of this connection; the read that waited for the client to leave is the first
// of it.
void Session::NextRequest() {
  if (client_left_) return Close();
  if (!watching_) return ReadRequest();
  next_after_watch_ = true;
  if (buffer_.size() > 0) connection_->Cancel();  // it is there already
  connection_->ExpireAfter(std::chrono::seconds(service_.live()->config.idle_timeout_s));
}

void Session::ClientLeft() {
  if (answer_ == nullptr) return;
  if (!answer_->ended()) {  // else only its last bytes were not taken
    // The only deadline of a generation is that of what is written to its client.
    answer_->Leave(connection_->expired() ? CancelCause::kSlowReader : CancelCause::kDisconnect);
    LogAccess(499);
  }
  answer_.reset();
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

// What a client does not read waits with the engine, which then pauses its request.
void Session::TakeAnswer() {
  if (answer_ == nullptr || answer_->ended()) return;
  // An answer that was given up is over, whether or not its client reads that.
  const bool given_up = answer_->generation().given_up();
  if (outgoing_.size() + in_flight_.size() > kOutgoingBytesMax && !given_up)
    return;  // OnStreamWritten is next
  Answer::Output output;
  do {
    output = answer_->Take();
    if (output.response.has_value()) {
      Respond(*std::move(output.response));
      return answer_.reset();
    }
    if (output.failed) head_.keep_alive = false;
    if (output.last || !output.events.empty()) WriteStream(std::move(output.events), output.last);
    if (output.last) LogAccess(200);
  } while (given_up && !output.last && !output.events.empty());
}

// A stream that says nothing for long, in the queue or while its prompt is read, gets a comment.
void Session::KeepAlive() {
  const std::chrono::seconds silence(live_->config.sse_keepalive_s);
  if (silence.count() == 0 || answer_ == nullptr || answer_->ended()) return;
  if (!writing_ && Clock::now() - written_at_ >= silence) {
    std::string comment = answer_->KeepAlive();
    if (comment.empty()) return;  // no stream
    WriteStream(std::move(comment), false);
  }
  keep_alive_timer_.expires_at(std::max(written_at_ + silence, Clock::now() + kKeepAliveRetry));
  keep_alive_timer_.async_wait([weak = weak_from_this()](ErrorCode error) {
    const auto self = error ? nullptr : weak.lock();
    if (self != nullptr) self->KeepAlive();
  });
}

void Session::BeginStream() {
  headers_sent_ = true;
  outgoing_ = StrCat(
      "HTTP/1.1 200 OK\r\nServer: thermocline\r\nContent-Type: "
      "text/event-stream\r\nCache-Control: no-cache\r\n"
      "X-Accel-Buffering: no\r\n",
      head_.version >= 11 ? "Transfer-Encoding: chunked\r\n" : "",
      head_.keep_alive ? "" : "Connection: close\r\n");
  for (const auto& [name, value] : HeadersOf(head_)) outgoing_ += StrCat(name, ": ", value, "\r\n");
  outgoing_ += "\r\n";
}

void Session::WriteStream(std::string events, bool last) {
  if (!headers_sent_) BeginStream();
  body_bytes_ += events.size();
  const bool chunked = head_.version >= 11;  // HTTP/1.0 knows the end by the end of the connection
  outgoing_ += chunked ? Chunk(events) : events;
  if (last && chunked) outgoing_ += "0\r\n\r\n";
  last_queued_ = last_queued_ || last;
  if (!writing_) FlushStream();
}

void Session::FlushStream() {
  writing_ = true;
  written_at_ = Clock::now();
  in_flight_.swap(outgoing_);
  outgoing_.clear();
  connection_->ExpireWhenStuck(std::chrono::seconds(live_->config.write_timeout_s));
  asio::async_write(
      *connection_, asio::buffer(in_flight_),
      [self = shared_from_this()](ErrorCode error, std::size_t) { self->OnStreamWritten(error); });
}

void Session::OnStreamWritten(ErrorCode error) {
  writing_ = false;
  in_flight_.clear();
  connection_->ExpireNever();
  if (error) {
    ClientLeft();
    return Close();
  }
  if (!outgoing_.empty()) return FlushStream();
  if (last_queued_) return StreamDone();
  Guarded([this] { TakeAnswer(); });
}

void Session::StreamDone() {
  if (answer_ == nullptr) return;
  answer_.reset();
  Release();
  if (!head_.keep_alive) return Close();
  NextRequest();
}

}  // namespace thermocline::http
