// One connection: reads requests, writes answers, streams tokens, notices when the client leaves.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include <boost/asio/steady_timer.hpp>

#include "server/http/answer.h"
#include "server/http/connection.h"
#include "server/http/exchange.h"
#include "server/http/request_reader.h"
#include "server/http/response_writer.h"
#include "server/http/router.h"
#include "server/net/connection_count.h"

namespace thermocline::http {

// All handlers run on the connection's strand. Lives as long as something is pending: a read, a
// write, or a generation (whose callback holds the session until its end is taken).
class Session : public std::enable_shared_from_this<Session> {
 public:
  // `place`: let go of at the end. `router` outlives it.
  Session(std::shared_ptr<Connection> connection, server::Service& service, const Router& router,
          std::shared_ptr<net::ConnectionPlace> place);
  ~Session();

  void Start();

 private:
  using ErrorCode = boost::system::error_code;

  void ReadRequest();
  void MakeWayIfAsked();
  void ReadHeader();
  void OnHeader(ErrorCode error);
  // ResourceExhausted: the caller's key has as many connections as it may have.
  Status TakePlaceOfKey();
  void ReadBody();
  void OnRequest(ErrorCode error);
  // A long body was judged. A short one is not: it is in the margin of the plan.
  void OnJudged(const server::BodyCost& cost);
  void RouteByWorker(const server::BodyCost& cost);
  // As Workers::Post, of the request that was read.
  void PostWork(std::function<void()> work, std::function<void()> then, std::size_t bytes);
  std::optional<Action> RouteOrFail(const HttpRequest& request);
  void OnRouted(std::optional<Action> action);
  // The daemon ends before the request's turn has come.
  void OnDropped();
  // Runs `step`; what it throws ends this request, not the daemon: with an error if none of its
  // answer is on the way, else by the end of the connection.
  void Guarded(const std::function<void()>& step);
  void RespondFailed();
  // An answer to a request that could not be read; the connection ends with it.
  void RefuseUnreadable(ErrorCode error);
  // An answer to a request whose header goes no further.
  void RefuseHeader(HttpResponse response);
  // Writes an answer that a route made of a body, without a generation.
  void RespondMade(HttpResponse response);
  void Respond(HttpResponse response);
  void OnResponded(ErrorCode error, bool goes_on);
  void NextRequest();
  // Closes when the client has read the answer, though it may still be sending.
  void Linger();
  void Discard(std::size_t bytes_max);
  void Close();
  void Log(int status);
  // A drain waits no longer for the request in progress.
  void Release();

  // While an answer is generated: session_generation.cc.
  void CompileGrammar(GenerationPlan plan);
  // While its grammar waited: nothing of it is kept.
  void LeftEarly();
  void StartGeneration(GenerationPlan plan);
  void WatchForDeparture();
  void OnWatched(ErrorCode error);
  void TakeAnswer();
  // Writes the answer that is no stream, once there is room for it.
  void RespondWhole();
  void KeepAlive();
  void LookForDeparture();
  void WriteStream(const std::string& events, bool last);
  void OnStreamWritten(ErrorCode error);
  void StreamDone();
  void ClientLeft();

  const std::shared_ptr<Connection> connection_;
  boost::asio::steady_timer keep_alive_timer_;
  boost::asio::steady_timer departure_timer_;
  boost::asio::steady_timer room_timer_;
  server::Service& service_;
  const Router& router_;
  std::shared_ptr<net::ConnectionPlace> place_;  // among the connections
  RequestReader reader_;
  std::optional<Exchange> exchange_;    // of the request in progress, or of the last
  std::unique_ptr<Answer> answer_;      // in progress, until its last byte is written
  std::optional<StreamWriter> stream_;  // of the answer, since its first events
  bool sent_ = false;                   // the first bytes of an answer
  bool unread_ = false;                 // the client may still send what nobody reads
  bool watching_ = false;               // a read waits for the client to leave
  bool next_after_watch_ = false;       // that read's end begins the next request
  // While its grammar waits to be compiled: gives back the place in the queue.
  std::function<void()> give_up_;
  std::optional<server::RequestMemory::Hold> answer_hold_;  // of a whole answer being written
  bool routing_ = false;                                    // a long request is read by a worker
  // While it was read, its grammar waited or its answer was written. Workers look, too.
  std::atomic<bool> client_left_ = false;
};

}  // namespace thermocline::http
