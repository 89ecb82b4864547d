// One connection: reads requests, writes answers, streams tokens, notices when the client
// disconnects.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include <boost/asio/steady_timer.hpp>

#include "server/core/held_model.h"
#include "server/http/answer.h"
#include "server/http/connection.h"
#include "server/http/refusal.h"
#include "server/http/request_context.h"
#include "server/http/request_reader.h"
#include "server/http/response_writer.h"
#include "server/http/router.h"
#include "server/net/connection_count.h"

namespace thermocline::http {

// All handlers run on the connection's strand. Lives while an operation is pending: a read, a
// write, or a generation (whose callback holds the session until its end is taken).
class Session : public std::enable_shared_from_this<Session> {
 public:
  // `place`: released at the end. `router` outlives it.
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
  // ResourceExhausted: the caller's key has reached its limit of connections.
  Status TakePlaceOfKey();
  void ReadBody();
  void OnRequest(ErrorCode error);
  // Called with the estimated cost of a long body. Short ones are within the memory plan's margin.
  void RouteWithoutBody(const HttpRequest& request);
  // server::RequestedModel; "" if there is one model.
  std::string NamedModel() const {
    const HttpRequest& request = reader_.request();
    return several() ? server::RequestedModel(request.body(), request.target()) : "";
  }
  void OnJudged(const std::string& model, const server::BodyCost& cost);
  void RouteByWorker(const server::BodyCost& cost);
  // Takes the model of that name, and wakes it if it sleeps; then routes the request.
  void RouteToModel(const std::string& name, const server::BodyCost& cost);
  // While the model sleeps: session_waking.cc.
  void WaitForModel(const server::BodyCost& cost);
  void TellWakingAfter(std::chrono::seconds silence);
  void TellWaking();
  void OnWakingWritten(ErrorCode error);
  void EndStreamWith(const HttpResponse& response);
  // True if requests name one of several models.
  bool several() const { return service_.models() != nullptr && service_.models()->several(); }
  // As Workers::Post, for the current request.
  void PostWork(std::function<void()> work, std::function<void()> then, std::size_t bytes);
  std::optional<Action> RouteOrFail(const HttpRequest& request);
  void OnRouted(std::optional<Action> action);
  // Called when the daemon stops before the request's turn.
  void OnDropped();
  // Runs `step`. An exception ends this request, not the daemon: with an error response if no byte
  // of the answer was sent, else by closing the connection.
  void Guarded(const std::function<void()>& step);
  void RespondFailed();
  // Answers a request that could not be read, then closes the connection.
  void RefuseUnreadable(ErrorCode error);
  // Answers a request that its header already decides.
  void RefuseHeader(HttpResponse response);
  // Writes an answer that a route made from a body, without a generation.
  void RespondMade(HttpResponse response);
  void Respond(HttpResponse response);
  void OnResponded(ErrorCode error, bool keep_alive);
  void NextRequest();
  // Reads a request that has arrived early after a pause.
  void PacePipelined();
  // Closes when the client has read the answer, though it may still be sending.
  void Linger();
  void Discard(std::size_t bytes_max);
  void Close();
  void Log(int status);
  // A drain stops waiting for the current request.
  void Release();

  // While an answer is generated: session_generation.cc.
  void CompileGrammar(GenerationPlan plan);
  // Called when the client disconnects while its grammar waits: frees everything of the request.
  void OnDisconnect();
  void StartGeneration(GenerationPlan plan);
  void StartAnswer(const AnswerStarter& start);
  void WatchForDisconnect();
  void OnWatched(ErrorCode error);
  void TakeAnswer();
  // True if the rest of a stream is to be taken at once, since the engine has made all of it, and
  // there is memory for the part that the client has not read.
  bool TakesRest();
  // Accounts for the part of a stream that is made and that the client has not read.
  void HoldUnread();
  // Writes the complete response once there is memory for it.
  void RespondInFull();
  void KeepAlive();
  void PollForDisconnect();
  void WriteStream(const std::string& events, bool last);
  void OnStreamWritten(ErrorCode error);
  void StreamDone();
  void CancelGeneration();
  // The answer is made: a client that reads it slowly does not keep the model awake.
  void ReleaseAnswer();

  // The service of the model that the current request names.
  std::shared_ptr<server::Service> HoldFirst() const {
    return server::HoldOf(service_, "", server::ServedModels::Purpose::kLook, {});
  }
  // The refusal of a request whose model is not known.
  HttpResponse Refusal(const Status& status) {
    return RefusalResponse(*HoldFirst(), request_context_->head(), status);
  }
  server::Service& model() { return model_ != nullptr ? *model_ : service_; }

  const std::shared_ptr<Connection> connection_;
  boost::asio::steady_timer keep_alive_timer_;
  boost::asio::steady_timer disconnect_timer_;
  boost::asio::steady_timer room_timer_;
  server::Service& service_;
  const Router& router_;
  std::shared_ptr<server::Service> model_;       // held while it answers; nullptr = service_
  std::shared_ptr<net::ConnectionPlace> place_;  // its place in the limit on connections
  RequestReader reader_;
  std::optional<RequestContext> request_context_;  // the current or last request
  std::unique_ptr<Answer> answer_;                 // current answer, until all of it is made
  std::optional<StreamWriter> stream_;             // set from the answer's first events on
  bool sent_ = false;                              // the first bytes of an answer were sent
  bool unread_ = false;            // the client may still send bytes that are not needed
  bool watching_ = false;          // a read watches for the client's disconnection
  bool next_after_watch_ = false;  // the end of that read starts the next request
  // Releases the queue place while the grammar waits to be compiled.
  std::function<void()> release_place_;
  // Memory of a complete response being written.
  std::optional<server::RequestMemory::Hold> answer_hold_;
  // Since when a complete answer has waited for memory.
  std::optional<std::chrono::steady_clock::time_point> room_wanted_since_;
  bool routing_ = false;  // a worker parses a long request
  // The client disconnected during parsing, compiling or writing. Workers check it, too.
  std::atomic<bool> disconnected_ = false;
};

}  // namespace thermocline::http
