#include "server/grpc/generate_stream.h"

#include <algorithm>
#include <ctime>

#include <boost/asio/post.hpp>

#include "engine/base/interruption.h"
#include "engine/base/log.h"
#include "engine/base/out_of_memory.h"
#include "server/core/held_model.h"
#include "server/core/refusal_table.h"
#include "server/grpc/message_cost.h"
#include "server/grpc/refusal.h"

namespace thermocline::rpc {
namespace {

// Bytes of a message that count when it begins to be written; its progress is not known.
constexpr std::size_t kCountedMax = 512 << 10;

// Runs a step; an exception becomes an error.
Status DoOrFail(const std::string& id, server::Submission& submission,
                Status (server::Submission::*step)()) {
  try {
    return (submission.*step)();
  } catch (const std::exception& error) {
    base::LogError("id=", id, ": ", error.what());
    return base::Internal("");
  }
}

}  // namespace

std::shared_ptr<GenerateStream> GenerateStream::Start(const server::Strand& strand,
                                                      server::Service& service,
                                                      ConnectionCredit& credit,
                                                      ::grpc::CallbackServerContext& context) {
  std::shared_ptr<GenerateStream> stream(new GenerateStream(strand, service, credit, context));
  stream->self_ = stream;
  if (stream->request_context_.refusal().ok()) {
    stream->StartRead(&stream->message_);
  } else {
    stream->Post([s = stream.get()] { s->Refuse(s->request_context_.refusal()); });
  }
  return stream;
}

GenerateStream::GenerateStream(const server::Strand& strand, server::Service& service,
                               ConnectionCredit& credit, ::grpc::CallbackServerContext& context)
    : strand_(strand),
      service_(service),
      context_(context),
      request_context_(service, credit, context, kGeneratePath),
      timer_(strand_) {}

void GenerateStream::OnReadDone(bool ok) {
  // Runs on the library's thread, so that a long message delays no stream of this strand.
  server::BodyCost cost;
  base::UntilMemory([&] {
    if (ok) cost = CostOf(message_);
  });
  Post([this, ok, cost] {
    if (finished_) return;  // cancelled before the message arrived
    const Status begun = ok ? Begin(cost) : NoMessage();
    if (!begun.ok()) Refuse(begun);
  });
}

template <typename Work>
void GenerateStream::Post(Work work) {
  boost::asio::post(strand_, [self = shared_from_this(), work] { self->Guarded(work); });
}

// Exceptions of libraries or of the allocator end the request, not the daemon.
template <typename Work>
void GenerateStream::Guarded(Work work) {
  try {
    work();
  } catch (const std::exception& error) {
    base::LogError("id=", request_context_.id(), ": ", error.what());
    Cancel(CancelCause::kDisconnect);
    FinishNow(base::Internal(""));
  }
}

Status GenerateStream::Begin(const server::BodyCost& cost) {
  request_context_.OnMessage(message_.ByteSizeLong(), message_.request_id());
  RETURN_IF_ERROR(request_context_.refusal());
  RETURN_IF_ERROR(server::CheckCost(cost, service_.request_sizes()));
  work_bytes_ = cost.bytes;
  const server::ModelRights& rights = request_context_.caller().models;
  RETURN_IF_ERROR(server::CheckListed(service_, message_.model(), rights));
  model_ = server::HoldOf(service_, message_.model(), server::ServedModels::Purpose::kRequest,
                          rights, request_context_.caller().tenant);
  // The list may have changed since it was looked at.
  if (model_ == nullptr)
    return base::NotFound("the model '", message_.model(), "' is not served any more");
  request_context_.SetModel(*model_);
  const auto on_woken = [self = shared_from_this()](const Status& woken) {
    self->Post([s = self.get(), woken] {
      if (s->finished_) return;  // cancelled meanwhile
      const Status admitted = woken.ok() ? s->Admit() : woken;
      if (!admitted.ok()) s->Refuse(admitted);
    });
  };
  const auto gone = [self = shared_from_this()] { return self->finished_.load(); };
  server::WakeHeld(model_, {.woken = on_woken,
                            .gone = gone,
                            .client = request_context_.caller().tenant,
                            .deadline = request_context_.time_limit()});
  return OkStatus();
}

Status GenerateStream::Admit() {
  ASSIGN_OR_RETURN(
      GenerateParams params,
      ParseGenerate(message_, {.sampling = WithDefaults({}, model_->sampling_defaults()),
                               .max_tokens = model_->config().max_tokens}));
  const Request& request = params.generation.request;
  delta_options_ = {.token_ids = params.return_tokens, .logprobs = request.logprobs};
  progress_ = request.progress;
  ASSIGN_OR_RETURN(
      server::Submission submission,
      server::Submission::Admit(*model_,
                                {.id = request_context_.id(),
                                 .tenant = request_context_.caller().tenant,
                                 .priority_max = request_context_.caller().priority_max,
                                 .arrived = request_context_.arrived(),
                                 .client_deadline = request_context_.deadline(),
                                 .models = request_context_.caller().models},
                                std::move(params.generation)));
  submission_ = std::make_shared<server::Submission>(std::move(submission));
  Encode(message_.has_token_ids() && !message_.has_structured_output());
  return OkStatus();
}

void GenerateStream::Encode(bool at_once) {
  if (at_once) return OnEncoded(submission_->Encode());
  DoOn(service_.workers(message_.ByteSizeLong()), &server::Submission::Encode,
       &GenerateStream::OnEncoded);
}

void GenerateStream::DoOn(server::Workers& workers, Status (server::Submission::*step)(),
                          void (GenerateStream::*then)(const Status&)) {
  // The call may end meanwhile and free its message.
  const auto done = std::make_shared<Status>();
  workers.Post(
      request_context_.caller().tenant, strand_,
      [self = shared_from_this(), done, step] {
        const base::InterruptScope scope(self->finished_);
        if (!self->finished_)
          *done = DoOrFail(self->request_context_.id(), *self->submission_, step);
      },
      [self = shared_from_this(), done, then] {
        self->Guarded([&] { (self.get()->*then)(*done); });
      },
      [self = shared_from_this()] { self->Guarded([&] { self->Refuse(server::ShuttingDown()); }); },
      work_bytes_);
}

void GenerateStream::OnEncoded(const Status& encoded) {
  if (finished_) return;
  if (!encoded.ok()) return Refuse(encoded);
  if (!submission_->compiles()) return OnCompiled(encoded);
  DoOn(service_.compilers(), &server::Submission::Compile, &GenerateStream::OnCompiled);
}

void GenerateStream::OnCompiled(const Status& compiled) {
  if (finished_) return;
  const Status submitted = compiled.ok() ? Submit() : compiled;
  if (!submitted.ok()) Refuse(submitted);
}

Status GenerateStream::Submit() {
  v1::Started started;
  started.set_model(model_->model_name());
  started.set_prompt_tokens(
      static_cast<std::int32_t>(submission_->requests().front().prompt.size()));
  started.set_choices(submission_->choices());
  started.set_created(std::time(nullptr));
  // Called on the decode thread, so it only posts. Holds the stream until the generation ends.
  auto on_ready = [self = shared_from_this()] { self->Post([s = self.get()] { s->Pump(); }); };
  ASSIGN_OR_RETURN(generation_, submission_->Start(std::move(on_ready)));
  generation_->SetReadCounter(written_);
  submission_.reset();
  speculates_ = model_->engine()->Stats().spec.used;
  *AddEvent().mutable_started() = std::move(started);
  WatchWrites();
  Pump();
  return OkStatus();
}

void GenerateStream::Pump() {
  if (gone_ || finished_) return;
  if (generation_ != nullptr) TakeOutput();
  if (writing_) return;
  if (!events_.empty()) {
    in_flight_ = std::move(events_.front());
    events_.pop_front();
    writing_ = true;
    write_began_ = Clock::now();
    *written_ += static_cast<std::int64_t>(std::min(in_flight_.ByteSizeLong(), kCountedMax));
    return StartWrite(&in_flight_);
  }
  if (end_.has_value()) FinishNow(*end_);
}

void GenerateStream::TakeOutput() {
  if (generation_->given_up()) {
    end_ = server::NotRead();
    return ReleaseModel();
  }
  const bool rest = TakesRest();
  while ((rest || (events_.empty() && !writing_)) && !end_.has_value() && TakeUpdate()) continue;
  if (!end_.has_value() && generation_->finished()) end_ = OkStatus();
  if (end_.has_value()) ReleaseModel();
}

bool GenerateStream::TakesRest() {
  constexpr std::size_t kMessageOfByteMax = 24;  // of a byte of log probabilities, in memory
  const auto rest = generation_->rest();
  if (!rest.has_value()) return false;
  const std::size_t bytes = rest->text + rest->numbers * kMessageOfByteMax;
  if (bytes <= server::kSmallAnswerBytes) return true;
  rest_hold_.emplace(service_.request_memory(), request_context_.caller().tenant);
  return rest_hold_->ReserveForAnswer(bytes);
}

void GenerateStream::ReleaseModel() {
  request_context_.SetTokens(generation_->prompt_tokens(), generation_->tokens());
  request_context_.End(*end_);
  // Other choices may still run after one failed.
  if (!generation_->finished()) generation_->Cancel(CancelCause::kOtherChoice);
  generation_.reset();
  model_.reset();
}

bool GenerateStream::TakeUpdate() {
  for (int i = 0; i < generation_->choices(); ++i) {
    const int choice = next_choice_;
    next_choice_ = (next_choice_ + 1) % generation_->choices();
    if (!generation_->TakeUpdate(choice, update_)) continue;
    AddEvents(choice);
    return true;
  }
  return false;
}

v1::GenerateEvent& GenerateStream::AddEvent() {
  v1::GenerateEvent& event = events_.emplace_back();
  event.set_request_id(request_context_.id());
  event.set_sequence(sequence_++);
  return event;
}

void GenerateStream::AddEvents(int choice) {
  if (progress_ && update_.prompt_done >= 0) {
    v1::Progress& progress = *AddEvent().mutable_progress();
    progress.set_choice_index(choice);
    progress.set_prompt_tokens_read(update_.prompt_done);
    progress.set_cached_tokens(update_.prompt_cached);
  }
  // Tokens that complete no character yet are sent to clients that requested tokens.
  const bool tokens =
      !update_.tokens.empty() && (delta_options_.token_ids || delta_options_.logprobs >= 0);
  if (!update_.text.empty() || tokens) {
    v1::Delta& delta = *AddEvent().mutable_delta();
    delta.set_choice_index(choice);
    FillDelta(model_->engine()->tokenizer(), delta_options_, update_, delta);
  }
  if (!update_.finished) return;
  if (update_.reason == FinishReason::kError || update_.reason == FinishReason::kCancelled) {
    end_ = server::FailureOf(update_);
    return;
  }
  v1::Finished& finished = *AddEvent().mutable_finished();
  finished.set_choice_index(choice);
  FillFinished(update_, speculates_, finished);
}

void GenerateStream::Refuse(const Status& refusal) {
  if (finished_) return;
  server::CountRejection((model_ != nullptr ? *model_ : service_).metrics(), refusal);
  FinishNow(refusal);
}

void GenerateStream::FinishNow(const Status& status) {
  if (finished_) return;
  const ::grpc::Status told = ToGrpc(service_, status);
  finished_ = true;
  timer_.cancel();
  if (submission_ != nullptr) submission_->ReleasePlace();
  if (generation_ != nullptr)
    request_context_.SetTokens(generation_->prompt_tokens(), generation_->tokens());
  request_context_.End(status);
  Finish(told);
}

void GenerateStream::Cancel(CancelCause cause) {
  gone_ = true;
  events_.clear();
  if (generation_ != nullptr) generation_->Cancel(cause);
}

void GenerateStream::OnWriteDone(bool ok) {
  Post([this, ok] {
    writing_ = false;
    if (ok) Pump();  // otherwise OnCancel follows
  });
}

void GenerateStream::OnCancel() {
  Post([this] {
    if (finished_) return;
    const bool late = request_context_.IsLate();
    Cancel(late ? CancelCause::kDeadline : CancelCause::kDisconnect);
    FinishNow(late ? base::DeadlineExceeded("the call's deadline is over") : server::ClientGone());
  });
}

void GenerateStream::OnDone() {
  Post([this] { self_.reset(); });
}

void GenerateStream::WatchWrites() {
  const auto allowed = std::chrono::seconds(request_context_.reloadable().config.write_timeout_s);
  timer_.expires_at((writing_ ? write_began_ : Clock::now()) + allowed);
  timer_.async_wait([self = shared_from_this(), allowed](boost::system::error_code error) {
    if (!error) self->Guarded([&] { self->CheckWrite(allowed); });
  });
}

void GenerateStream::CheckWrite(std::chrono::seconds allowed) {
  if (finished_) return;
  if (!writing_ || Clock::now() < write_began_ + allowed) return WatchWrites();
  Cancel(CancelCause::kSlowReader);
  context_.TryCancel();  // Finish would wait for the unread messages
  FinishNow(server::ClientGone());
}

}  // namespace thermocline::rpc
