#include "server/http/session.h"

#include <chrono>

#include <boost/asio/dispatch.hpp>

#include "engine/base/interruption.h"
#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "server/core/held_model.h"
#include "server/core/submission.h"
#include "server/http/access.h"
#include "server/http/discard_pace.h"
#include "server/http/refusal.h"

namespace thermocline::http {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kReadBytes = 4096;
constexpr std::size_t kTlsBytes = 64 << 10;      // per connection
constexpr std::size_t kDiscardBytes = 16 << 10;  // per read, of bytes that are dropped
constexpr seconds kLinger{5};

}  // namespace

Session::Session(std::shared_ptr<Connection> connection, server::Service& service,
                 const Router& router, std::shared_ptr<net::ConnectionPlace> place)
    : connection_(std::move(connection)),
      keep_alive_timer_(connection_->get_executor()),
      disconnect_timer_(connection_->get_executor()),
      room_timer_(connection_->get_executor()),
      service_(service),
      router_(router),
      place_(std::move(place)),
      reader_(*connection_) {}

Session::~Session() {
  try {
    CancelGeneration();
  } catch (const std::exception& error) {
    base::LogError("a connection ends: ", error.what());
  }
  Release();
}

void Session::Start() {
  asio::dispatch(connection_->get_executor(), [self = shared_from_this()] {
    self->connection_->ExpireAfter(seconds(self->service_.reloadable()->config.read_timeout_s));
    self->MakeWayIfAsked();
    self->connection_->AsyncHandshake([self](ErrorCode error) {
      if (error) return self->Close();
      self->ReadRequest();
    });
  });
}

void Session::ReadRequest() {
  MakeWayIfAsked();
  if (reader_.early_bytes() > 0) return ReadHeader();
  // A connection may be idle for long between requests, but after a request's first byte the rest
  // must follow soon.
  connection_->ExpireAfter(seconds(service_.reloadable()->config.idle_timeout_s));
  reader_.ReadSome(kReadBytes, [self = shared_from_this()](ErrorCode error) {
    error ? self->Close() : self->ReadHeader();
  });
}

void Session::ReadHeader() {
  sent_ = unread_ = false;
  stream_.reset();
  request_context_.emplace(service_, connection_->peer());
  const server::ServerConfig& config = request_context_->reloadable().config;
  connection_->ExpireAfter(seconds(config.read_timeout_s));
  reader_.ReadHeader(config.body_bytes_max,
                     [self = shared_from_this()](ErrorCode error) { self->OnHeader(error); });
}

void Session::OnHeader(ErrorCode error) {
  model_.reset();                  // a client that sends slowly keeps no model awake
  const auto first = HoldFirst();  // it writes what is refused here
  // The header is complete even if the announced body is too large: the key is checked first.
  if (error && error != boost::beast::http::error::body_limit) return RefuseUnreadable(error);
  auto refusal = request_context_->OnHeader(reader_.request(), connection_->peer(),
                                            router_.ErrorsOf(reader_.request()));
  if (refusal.has_value()) return RefuseHeader(*std::move(refusal));
  request_context_->SetRoute(router_.RouteOf(reader_.request()));
  if (error) return RefuseUnreadable(error);
  if (request_context_->caller().known) {
    const Status place = TakePlaceOfKey();
    if (!place.ok()) return RefuseHeader(Refusal(place));
    MakeWayIfAsked();  // closed only after those without a key
  }
  reader_.SendContinue(
      [self = shared_from_this()](ErrorCode failed) { failed ? self->Close() : self->ReadBody(); });
}

Status Session::TakePlaceOfKey() {
  const server::ReloadableConfig& reloadable = request_context_->reloadable();
  if (!reloadable.needs_keys() || connection_->peer().admin) return OkStatus();
  const int most = reloadable.config.ConnectionsMaxOfKey();
  return place_->AssignTo(request_context_->head().tenant, most) ? OkStatus()
                                                                 : server::TooManyConnections(most);
}

void Session::ReadBody() {
  reader_.ReadBody(service_.request_memory(), request_context_->head().tenant,
                   [self = shared_from_this()](ErrorCode error) { self->OnRequest(error); });
}

void Session::RefuseHeader(HttpResponse response) {
  unread_ = HasBody(reader_.request()) || !request_context_->head().keep_alive;
  if (unread_) response.keep_alive(false);
  Respond(std::move(response));
}

void Session::RefuseUnreadable(ErrorCode error) {
  const auto refusal = reader_.RefusalOf(error, request_context_->reloadable().config);
  if (!refusal.has_value()) return Close();  // there is no client to answer
  unread_ = true;
  request_context_->EndConnection();
  Respond(ErrorResponse(request_context_->head(), *refusal));
}

void Session::OnRequest(ErrorCode error) {
  if (!reader_.no_room().ok()) return RefuseHeader(Refusal(reader_.no_room()));
  if (error) return RefuseUnreadable(error);
  const bool without_key =
      request_context_->reloadable().needs_keys() && !request_context_->caller().known;
  if (!without_key && !place_->MarkBusy()) return Close();
  const HttpRequest& request = reader_.request();
  const std::size_t bytes = request.body().size();
  if (bytes == 0) return RouteWithoutBody(request);
  connection_->ExpireNever();  // the client has sent all of its request
  if (bytes <= server::kShortBytesMax) return RouteToModel(NamedModel(), {});
  routing_ = true;
  WatchForDisconnect();
  struct Judged {
    server::BodyCost cost;
    std::string model;
  };
  const auto judged = std::make_shared<Judged>();
  PostWork(
      [self = shared_from_this(), judged] {
        if (self->disconnected_) return;
        judged->cost = server::CostOf(self->reader_.request().body());
        judged->model = self->NamedModel();
      },
      [self = shared_from_this(), judged] { self->OnJudged(judged->model, judged->cost); }, 0);
}

void Session::RouteWithoutBody(const HttpRequest& request) {
  const std::string name = NamedModel();
  if (!name.empty() || !request_context_->head().models.all()) return RouteToModel(name, {});
  model_ = HoldFirst();
  OnRouted(RouteOrFail(request));
}

void Session::OnJudged(const std::string& model, const server::BodyCost& cost) {
  Guarded([&] {
    const Status readable = server::CheckCost(cost, service_.request_sizes());
    readable.ok() ? RouteToModel(model, cost) : OnRouted(Refusal(readable));
  });
}

void Session::RouteByWorker(const server::BodyCost& cost) {
  const auto action = std::make_shared<std::optional<Action>>();
  PostWork(
      [self = shared_from_this(), action, work_bytes = cost.bytes] {
        const base::InterruptScope scope(self->disconnected_);
        if (!self->disconnected_) *action = self->RouteOrFail(self->reader_.request());
        server::TrimHeap(work_bytes);
      },
      [self = shared_from_this(), action] { self->OnRouted(std::move(*action)); }, cost.bytes);
}

void Session::PostWork(std::function<void()> work, std::function<void()> then, std::size_t bytes) {
  service_.workers(reader_.request().body().size())
      .Post(
          request_context_->head().tenant, connection_->get_executor(), std::move(work),
          std::move(then), [self = shared_from_this()] { self->OnDropped(); }, bytes);
}

void Session::OnDropped() {
  routing_ = false;
  Guarded([this] { Respond(Refusal(server::ShuttingDown())); });
}

// An exception from a library or the allocator ends the request, not the daemon; returns nullopt
// then.
std::optional<Action> Session::RouteOrFail(const HttpRequest& request) {
  const ResponseHead& head = request_context_->head();
  try {
    Action action = router_.Answer(model(), request, head);
    if (base::Interrupted()) return RefusalResponse(model(), head, server::ShuttingDown());
    return action;
  } catch (const std::exception& error) {
    base::LogError("id=", head.request_id, ": ", error.what());
    return std::nullopt;
  }
}

void Session::OnRouted(std::optional<Action> action) {
  const bool has_body = !reader_.request().body().empty();
  reader_.Clear();
  routing_ = false;
  if (disconnected_) {
    Log(499);
    return Close();
  }
  if (!action.has_value()) return RespondFailed();
  Guarded([&] {
    if (auto* plan = std::get_if<GenerationPlan>(&*action)) {
      request_context_->ReportIgnored(plan->submission.generation_request().ignored_fields);
      plan->submission.compiles() ? CompileGrammar(std::move(*plan))
                                  : StartGeneration(std::move(*plan));
    } else if (const auto* start = std::get_if<AnswerStarter>(&*action)) {
      StartAnswer(*start);
    } else {
      auto& response = std::get<HttpResponse>(*action);
      has_body ? RespondMade(std::move(response)) : Respond(std::move(response));
    }
  });
}

void Session::Guarded(const std::function<void()>& step) {
  try {
    step();
  } catch (const std::exception& error) {
    base::LogError("id=", request_context_->head().request_id, ": ", error.what());
    if (answer_ != nullptr) answer_->Cancel(CancelCause::kDisconnect);
    answer_.reset();
    if (!sent_) return RespondFailed();
    Log(500);
    Close();
  }
}

void Session::RespondFailed() {
  try {
    Respond(ErrorResponse(request_context_->head(), protocol::FromStatus(base::Internal(""))));
  } catch (const std::exception& error) {
    base::LogError("id=", request_context_->head().request_id, ": ", error.what());
    Close();
  }
}

// A client with unread answers gets no more large ones, except for its first. Small answers to
// requests without a body, such as pages and metrics, are always sent: they are covered by
// server.connections_max.
void Session::RespondMade(HttpResponse response) {
  const std::size_t bytes = response.body().size();
  if (bytes <= server::kSmallAnswerBytes) return Respond(std::move(response));
  answer_hold_.emplace(service_.request_memory(), request_context_->head().tenant);
  if (answer_hold_->ReserveForAnswer(bytes)) return Respond(std::move(response));
  response = {};
  Respond(Refusal(server::UnreadAnswers()));
}

void Session::Respond(HttpResponse response) {
  reader_.Clear();
  if (stream_.has_value() && !stream_->ended()) return EndStreamWith(response);
  const bool head_only = request_context_->head_only(), keep_alive = response.keep_alive();
  if (!head_only) request_context_->CountBytes(response.body().size());
  if (response.body().size() <= server::kSmallAnswerBytes) {
    answer_hold_.reset();
  } else {
    if (!answer_hold_.has_value())
      answer_hold_.emplace(service_.request_memory(), request_context_->head().tenant);
    answer_hold_->Force(response.body().size());
  }
  Log(response.result_int());
  if (answer_ == nullptr) model_.reset();  // a slow reader does not keep it awake
  connection_->ExpireWhenStuck(request_context_->write_limits(),
                               head_only ? 0 : response.body().size());
  WriteResponse(*connection_, std::move(response), head_only,
                [self = shared_from_this(), keep_alive](ErrorCode error) {
                  self->OnResponded(error, keep_alive);
                });
  sent_ = true;
}

void Session::OnResponded(ErrorCode error, bool keep_alive) {
  answer_hold_.reset();
  Release();
  model_.reset();
  if (error) return Close();
  if (keep_alive) return NextRequest();
  if (unread_) return Linger();
  Close();
}

// Starts the next request of this connection. A read that watched for the client's disconnection
// becomes its first read.
void Session::NextRequest() {
  if (disconnected_) return Close();
  if (!watching_ && reader_.early_bytes() > 0) return PacePipelined();
  if (!watching_) return ReadRequest();
  next_after_watch_ = true;
  MakeWayIfAsked();
  if (reader_.early_bytes() > 0) connection_->Cancel();  // the request has arrived already
  connection_->ExpireAfter(seconds(service_.reloadable()->config.idle_timeout_s));
}

// Clients that send the next request before they have the answer to the last one would otherwise
// keep a thread of streams busy, with or without a key.
void Session::PacePipelined() {
  constexpr milliseconds kPipelined{1};
  room_timer_.expires_after(kPipelined);
  room_timer_.async_wait([self = shared_from_this()](ErrorCode error) {
    if (!error) self->ReadRequest();
  });
}

// Offers this connection's place to new ones, except for the operator's. It stays on offer until a
// complete request with its key has arrived: a client that sends slowly, or reads slowly without a
// key, keeps no one out.
void Session::MakeWayIfAsked() {
  if (connection_->peer().admin) return;
  place_->MarkIdle([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    asio::post(self->connection_->get_executor(), [self] { self->Close(); });
  });
}

// Closing a socket with unread bytes resets the connection, which may lose the answer.
void Session::Linger() {
  if (unread_) {
    unread_ = false;
    connection_->ShutdownSend();
    connection_->ExpireAfter(kLinger);
  }
  const std::size_t bytes = reader_.early_bytes();
  reader_.DiscardEarly();
  room_timer_.expires_after(WaitToDiscard(bytes));
  room_timer_.async_wait([self = shared_from_this(), bytes](ErrorCode error) {
    if (!error) self->Discard(bytes < kReadBytes ? kReadBytes : kDiscardBytes);
  });
}

void Session::Discard(std::size_t bytes_max) {
  if (connection_->expired()) return Close();
  reader_.ReadSome(bytes_max, [self = shared_from_this()](ErrorCode error) {
    error ? self->Close() : self->Linger();
  });
}

void Session::Close() {
  Release();
  room_timer_.cancel();  // memory for discarded bytes is not waited for
  connection_->Close();
  if (connection_->peer().tls) service_.request_memory().CountFreed(kTlsBytes);
}

void Session::Log(int status) {
  request_context_->Log(status, answer_ != nullptr ? answer_->generation() : nullptr);
}

void Session::Release() {
  if (request_context_.has_value()) request_context_->Release();
}

}  // namespace thermocline::http
