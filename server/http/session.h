// One connection: reads requests, writes answers, streams tokens, notices when the client leaves.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "server/http/answer.h"
#include "server/http/connection.h"
#include "server/http/gate.h"
#include "server/http/routes.h"

namespace thermocline::http {

// All handlers run on the connection's strand. Lives as long as something is pending: a read, a
// write, or a generation (whose callback holds the session until its end is taken).
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(std::shared_ptr<Connection> connection, server::Service& service,
          std::function<void()> on_end);
  ~Session();

  void Start();

 private:
  using Clock = std::chrono::steady_clock;
  using ErrorCode = boost::beast::error_code;

  void ReadRequest();
  void ReadHeader();
  void NextRequest();
  void OnHeader(ErrorCode error);
  // What the header alone tells: limits, and who calls. An answer, if it goes no further.
  std::optional<HttpResponse> CheckHeader();
  void ReadBody();
  void OnRequest(ErrorCode error);
  Routed RouteOrFail(const HttpRequest& request);
  void OnRouted(Routed routed);
  // Runs `step`; what it throws ends this connection, not the daemon.
  template <typename Step>
  void Guarded(Step step);
  // An answer to a request that could not be read; the connection ends with it.
  void RefuseUnreadable(ErrorCode error);
  void RefuseHeader(HttpResponse response);
  void Respond(HttpResponse response);
  void OnResponded(ErrorCode error);
  // Closes when the client has read the answer, though it may still be sending.
  void Linger();
  void Close();

  void StartGeneration(GenerationPlan plan);
  void WatchForDeparture();
  void OnWatched(ErrorCode error);
  void TakeAnswer();
  void KeepAlive();
  void BeginStream();
  // Bytes of a chunked body, written one batch at a time.
  void WriteStream(std::string events, bool last);
  void FlushStream();
  void OnStreamWritten(ErrorCode error);
  void StreamDone();
  void ClientLeft();
  // A drain waits for this connection from a request's first byte (Hold) until its answer is
  // written or nobody waits for it (Release).
  void Hold();
  void Release();
  void LogAccess(int status);

  const std::shared_ptr<Connection> connection_;
  boost::asio::steady_timer keep_alive_timer_;
  server::Service& service_;
  const std::function<void()> on_end_;
  // Bounds what is read and not yet understood: trailers and chunk extensions, which have no other
  // bound.
  static constexpr std::size_t kBufferBytesMax = 128 << 10;
  boost::beast::flat_buffer buffer_{kBufferBytesMax};
  // Of the request in progress. What is large is let go of as soon as it is used: a client may wait
  // long for its answer.
  std::shared_ptr<const server::Live> live_;
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  std::optional<boost::beast::http::serializer<false, boost::beast::http::string_body>> serializer_;
  HttpResponse response_;
  ResponseHead head_;
  Caller caller_;
  bool head_only_ = false;  // the request's method is HEAD
  bool unread_ = false;     // the client may still send what nobody reads
  std::string method_, route_, trace_id_;
  Clock::time_point arrived_;

  std::unique_ptr<Answer> answer_;  // in progress, until its last byte is written
  bool active_ = false;             // counted in Service::active_requests
  bool watching_ = false;           // a read waits for the client to leave
  bool next_after_watch_ = false;   // that read's end begins the next request
  bool client_left_ = false;        // while its answer was written
  bool headers_sent_ = false;
  Clock::time_point written_at_;  // the last bytes of the stream
  std::string outgoing_;          // framed bytes waiting to be written
  std::string in_flight_;         // bytes being written
  std::size_t body_bytes_ = 0;    // of the answer, so far
  bool writing_ = false;
  bool last_queued_ = false;  // the end of the stream is in outgoing_ or written
};

}  // namespace thermocline::http
