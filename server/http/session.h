// One connection: reads requests, writes answers, streams tokens, notices when the client leaves.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "server/http/routes.h"

namespace thermocline::http {

// All handlers run on the connection's strand. Lives as long as something is pending: a read, a
// write, or a generation (whose channel's callback holds the session until channel_ is reset).
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(boost::asio::ip::tcp::socket socket, server::Service& service,
          std::function<void()> on_end);
  ~Session();

  void Start();

 private:
  using Clock = std::chrono::steady_clock;
  using ErrorCode = boost::beast::error_code;

  void ReadRequest();
  void ReadHeader();
  void NextRequest();
  Routed RouteOrFail(const HttpRequest& request);
  void OnHeader(ErrorCode error);
  void OnRequest(ErrorCode error);
  // An answer to a request that could not be read; the connection ends with it.
  void RefuseUnreadable(ErrorCode error);
  void Respond(HttpResponse response);
  void Close();

  void StartGeneration(GenerationPlan plan);
  void WatchForDeparture();
  void OnTokens();
  void ObserveTokens(const TokenChannel::Update& update);
  void StreamUpdate(const TokenChannel::Update& update);
  void FinishGeneration(const TokenChannel::Update& update);
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

  boost::beast::tcp_stream stream_;
  server::Service& service_;
  const std::function<void()> on_end_;
  boost::beast::flat_buffer buffer_;
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  std::optional<boost::beast::http::serializer<false, boost::beast::http::string_body>> serializer_;
  HttpResponse response_;
  ResponseHead head_;
  bool head_only_ = false;  // the request's method is HEAD
  std::string method_, route_;
  Clock::time_point arrived_;

  // The generation in progress.
  std::shared_ptr<TokenChannel> channel_;
  bool active_ = false;            // counted in Service::active_requests
  bool ended_ = false;             // the engine has finished the generation
  bool watching_ = false;          // a read waits for the client to leave
  bool next_after_watch_ = false;  // that read's end begins the next request
  TokenChannel::Update update_;
  openai::AnswerHead answer_;
  bool streaming_ = false;
  bool headers_sent_ = false;
  std::string text_;       // of an answer that is not streamed
  std::string outgoing_;   // framed bytes waiting to be written
  std::string in_flight_;  // bytes being written
  bool writing_ = false;
  bool last_queued_ = false;  // the end of the stream is in outgoing_ or written
  std::optional<Clock::time_point> last_token_at_;
};

}  // namespace thermocline::http
