// The part of Session that runs while an answer is generated.
#include <algorithm>
#include <chrono>

#include <boost/asio/post.hpp>

#include "engine/base/log.h"
#include "server/http/generated_answer.h"
#include "server/http/refusal.h"
#include "server/http/session.h"

namespace thermocline::http {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

constexpr std::chrono::milliseconds kDisconnectPoll{200}, kMemoryPoll{100};
constexpr std::chrono::seconds kProgressInterval{1};
constexpr std::chrono::milliseconds kKeepAliveRetry{100};  // after a write in progress
constexpr std::size_t kEarlyBytesMax = 64 << 10;     // sent before the last answer is complete
constexpr std::size_t kOutgoingBytesMax = 64 << 10;  // not read by the client yet
constexpr std::size_t kWatchBytes = 512;

}  // namespace

// Compiling a hostile grammar can take seconds, so it has its own thread pool and is skipped once
// the client has disconnected.
void Session::CompileGrammar(GenerationPlan plan) {
  struct Work {
    // The model is awake as long as it compiles, whatever becomes of the session, and until the
    // plan is gone, which has a place of its engine.
    std::shared_ptr<server::Service> held;
    GenerationPlan plan;
    std::optional<Status> status;  // nullopt: it threw, or the client has disconnected
  };
  const auto work = std::make_shared<Work>(Work{model_, std::move(plan), {}});
  std::function<void()> release_place = [work] { work->plan.submission.ReleasePlace(); };
  if (!watching_) reader_.Shrink();  // a read in progress uses the buffer
  WatchForDisconnect();
  model().compilers().Post(
      request_context_->head().tenant, connection_->get_executor(),
      [self = shared_from_this(), work] {
        if (self->disconnected_) return;
        try {
          work->status = work->plan.submission.Compile();
        } catch (const std::exception& error) {
          base::LogError("id=", self->request_context_->head().request_id, ": ", error.what());
        }
      },
      [self = shared_from_this(), work] {
        self->release_place_ = {};
        if (self->disconnected_) return;  // OnDisconnect was called
        if (!work->status.has_value()) return self->RespondFailed();
        self->Guarded([&] {
          const ResponseHead& head = self->request_context_->head();
          work->status->ok() ? self->StartGeneration(std::move(work->plan))
                             : self->Respond(RefusalResponse(self->model(), head, *work->status));
        });
      },
      [self = shared_from_this()] {
        self->release_place_ = {};
        if (!self->disconnected_) self->OnDropped();
      });
  // Last, because it cannot throw: the continuation is certain now.
  release_place_.swap(release_place);
}

void Session::OnDisconnect() {
  disconnected_ = true;
  release_place_();
  Log(499);
  Close();
  place_.reset();
}

void Session::StartGeneration(GenerationPlan plan) {
  // Started once.
  const auto owned = std::make_shared<GenerationPlan>(std::move(plan));
  StartAnswer([this, owned](std::function<void()> on_ready) {
    return GeneratedAnswer::Start(model(), request_context_->head(), std::move(*owned),
                                  std::move(on_ready));
  });
}

void Session::StartAnswer(const AnswerStarter& start) {
  // Called on the thread that makes the output, so it only posts. Holds the session until the
  // answer ends.
  auto on_ready = [self = shared_from_this(), executor = connection_->get_executor()] {
    asio::post(executor, [self] { self->Guarded([&] { self->TakeAnswer(); }); });
  };
  auto answer = start(std::move(on_ready));
  if (!answer.ok())
    return Respond(RefusalResponse(model(), request_context_->head(), answer.status()));
  answer_ = *std::move(answer);
  answer_->SetReadCounter(connection_->written_bytes());
  if (const std::string events = answer_->Open(); !events.empty()) WriteStream(events, false);
  KeepAlive();
  if (!watching_) reader_.Shrink();
  connection_->ExpireNever();
  WatchForDisconnect();
}

// During a generation a read detects the client's disconnection. Bytes that arrive early (the next
// request) wait in the reader.
void Session::WatchForDisconnect() {
  if (watching_) return;
  if (reader_.early_bytes() >= kEarlyBytesMax) return PollForDisconnect();
  reader_.ReadSome(kWatchBytes, [self = shared_from_this()](ErrorCode error) {
    self->watching_ = false;
    self->OnWatched(error);
  });
  watching_ = true;  // set after all calls that may throw
}

// Polls the connection of a client that has sent more than the reader takes.
void Session::PollForDisconnect() {
  disconnect_timer_.expires_after(kDisconnectPoll);
  disconnect_timer_.async_wait([self = shared_from_this()](ErrorCode error) {
    if (error || self->watching_) return;
    const ErrorCode left = self->connection_->peer_disconnected() ? asio::error::eof : ErrorCode();
    self->Guarded([&] { self->OnWatched(left); });
  });
}

void Session::OnWatched(ErrorCode error) {
  if (next_after_watch_) {
    next_after_watch_ = false;
    const bool cancelled = error == asio::error::operation_aborted && reader_.early_bytes() > 0;
    const bool gone = error && !(cancelled && !connection_->expired());
    return gone || !place_->MarkBusy() ? Close() : ReadHeader();
  }
  if (answer_ != nullptr && error) {
    CancelGeneration();
    return Close();
  }
  if (release_place_ && error) return OnDisconnect();
  if (answer_ != nullptr || release_place_ || (routing_ && !error)) return WatchForDisconnect();
  // A worker parses the request, or a complete response is being written.
  if (error) disconnected_ = true;
}

// Output that a client does not read stays in the engine, which then pauses the request.
void Session::TakeAnswer() {
  if (answer_ == nullptr || answer_->ended()) return;
  // An answer that was given up ends even if its client does not read.
  const bool given_up = answer_->given_up(), rest = !given_up && TakesRest();
  if (stream_.has_value() && stream_->waiting_bytes() > kOutgoingBytesMax && !given_up && !rest)
    return;  // OnStreamWritten calls this again
  Answer::Output output;
  do {
    output = answer_->NextOutput();
    if (output.response.has_value()) {
      Respond(*std::move(output.response));
      return ReleaseAnswer();
    }
    if (output.complete) return RespondInFull();
    if (output.failed) request_context_->EndConnection();
    if (output.last || !output.events.empty()) WriteStream(output.events, output.last);
  } while (!output.last && rest);
  if (!output.last) return;
  Log(200);
  HoldUnread();
  ReleaseAnswer();
}

void Session::HoldUnread() {
  const std::size_t bytes = stream_->waiting_bytes();
  if (bytes <= server::kSmallAnswerBytes) return answer_hold_.reset();
  if (!answer_hold_.has_value())
    answer_hold_.emplace(service_.request_memory(), request_context_->head().tenant);
  answer_hold_->Force(bytes);
}

bool Session::TakesRest() {
  const auto bytes = stream_.has_value() ? answer_->rest_bytes_max() : std::nullopt;
  if (!bytes.has_value()) return false;
  const std::size_t all = *bytes + stream_->waiting_bytes();
  if (all <= server::kSmallAnswerBytes) return true;
  answer_hold_.emplace(service_.request_memory(), request_context_->head().tenant);
  return answer_hold_->ReserveForAnswer(all);
}

void Session::ReleaseAnswer() {
  answer_.reset();
  model_.reset();
  room_wanted_since_.reset();
}

void Session::RespondInFull() {
  const std::size_t bytes = answer_->whole_bytes_max();
  if (bytes > 0) answer_hold_.emplace(service_.request_memory(), request_context_->head().tenant);
  if (bytes > 0 && !answer_hold_->ReserveForAnswer(bytes)) {
    if (!room_wanted_since_.has_value()) room_wanted_since_ = Clock::now();
    if (several() && Clock::now() > *room_wanted_since_ + server::kReaderPatience &&
        service_.models()->WaitsForBusy()) {
      ReleaseAnswer();
      return Respond(Refusal(server::UnreadAnswers()));
    }
    room_timer_.expires_after(kMemoryPoll);
    return room_timer_.async_wait([self = shared_from_this()](ErrorCode error) {
      if (!error) self->Guarded([&] { self->TakeAnswer(); });
    });
  }
  Respond(answer_->FullResponse());
  ReleaseAnswer();
}

// A stream that is silent for long, in the queue or during prefill, gets a comment.
void Session::KeepAlive() {
  seconds silence(request_context_->reloadable().config.sse_keepalive_s);
  if (silence.count() == 0 || answer_ == nullptr || answer_->ended()) return;
  if (answer_->tells_progress()) silence = std::min(silence, kProgressInterval);
  const auto written_at = [this] {
    return stream_.has_value() ? stream_->written_at() : request_context_->head().arrived;
  };
  const bool writing = stream_.has_value() && stream_->writing();
  if (!writing && Clock::now() - written_at() >= silence) {
    const std::string comment = answer_->KeepAlive();
    if (comment.empty()) return;  // not a stream
    WriteStream(comment, false);
  }
  keep_alive_timer_.expires_at(std::max(written_at() + silence, Clock::now() + kKeepAliveRetry));
  keep_alive_timer_.async_wait([weak = weak_from_this()](ErrorCode error) {
    const auto self = error ? nullptr : weak.lock();
    if (self != nullptr) self->Guarded([&] { self->KeepAlive(); });
  });
}

void Session::WriteStream(const std::string& events, bool last) {
  if (!stream_.has_value())
    stream_.emplace(*connection_, request_context_->head(), answer_->content_type(),
                    request_context_->write_limits());
  request_context_->CountBytes(events.size());
  stream_->Write(events, last,
                 [self = shared_from_this()](ErrorCode error) { self->OnStreamWritten(error); });
  sent_ = true;
}

void Session::OnStreamWritten(ErrorCode error) {
  if (error) {
    CancelGeneration();
    return Close();
  }
  if (stream_->ended()) return StreamDone();
  Guarded([this] { TakeAnswer(); });
}

void Session::StreamDone() {
  answer_hold_.reset();
  model_.reset();
  Release();
  if (!request_context_->head().keep_alive) return Close();
  NextRequest();
}

void Session::CancelGeneration() {
  if (answer_ == nullptr) return;
  if (!answer_->ended()) {  // otherwise only its last bytes were not read
    // During a generation the only deadline is the one for writing.
    answer_->Cancel(connection_->expired() ? CancelCause::kSlowReader : CancelCause::kDisconnect);
    Log(499);
  }
  answer_.reset();
  Release();
}

}  // namespace thermocline::http
