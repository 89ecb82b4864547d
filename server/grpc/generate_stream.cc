#include "server/grpc/generate_stream.h"

#include <algorithm>
#include <ctime>

#include <boost/asio/post.hpp>

#include "engine/base/log.h"
#include "server/core/prompt.h"

namespace thermocline::rpc {
namespace {

using Clock = std::chrono::steady_clock;
using Deadline = std::optional<Clock::time_point>;

// Of a client's words in a message, which trailers carry twice.
constexpr std::size_t kEchoBytesMax = 128;

// From now; 0 = none.
Deadline After(double seconds) {
  if (seconds <= 0) return std::nullopt;
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

Deadline Earliest(std::initializer_list<Deadline> deadlines) {
  Deadline first;
  for (const Deadline& each : deadlines)
    if (each.has_value() && (!first.has_value() || *each < *first)) first = each;
  return first;
}

const char* InputField(const v1::GenerateRequest& message) {
  return message.has_text() ? "text" : message.has_chat() ? "chat" : "token_ids";
}

// The field that the engine found fault with.
std::string FieldOf(const Status& status, const v1::GenerateRequest& message) {
  const std::pair<std::string_view, const char*> kFields[] = {
      {"logit_bias", "sampling.logit_bias"},
      {"ffn_mode", "ffn_mode"},
      {"spec.mode", "speculation.mode"},
      {"draft_tokens", "speculation.draft_tokens"},
      {"stop_token", "stop.stop_token_ids"},
      {"min_tokens", "stop.min_tokens"},
      {"dry_", "sampling.dry"},
      {"the prompt", InputField(message)}};
  for (const auto& [start, field] : kFields)
    if (status.message().starts_with(start)) return field;
  return "";
}

// The prompt's tokens. Errors as server::EncodeChat and its like.
Result<std::vector<int>> TokensOf(const server::Service& service, GenerateParams& params) {
  std::size_t* const count = &params.prompt_tokens;
  if (params.text.has_value()) return server::EncodeText(service, *params.text, {}, count);
  if (params.conversation.has_value()) {
    return server::EncodeChat(service, *params.conversation, server::PromptLimit::kContext, count);
  }
  RETURN_IF_ERROR(server::CheckTokens(service, params.request.prompt));
  return params.request.prompt;
}

// Fills request.prompt.
Status EncodePrompt(server::Service& service, GenerateParams& params) {
  const auto begin = Clock::now();
  auto tokens = TokensOf(service, params);
  service.metrics().Tokenized(std::chrono::duration<double>(Clock::now() - begin).count());
  ASSIGN_OR_RETURN(params.request.prompt, std::move(tokens));
  return OkStatus();
}

// The same where nothing may be thrown.
Status EncodeOrFail(server::Service& service, const std::string& id, GenerateParams& params) {
  try {
    return EncodePrompt(service, params);
  } catch (const std::exception& error) {
    base::LogError("id=", id, ": ", error.what());
    return base::Internal("");
  }
}

// `status` of a prompt with `tokens`, at least.
Refusal RefusalOf(const server::Service& service, const Status& status, const std::string& field,
                  std::size_t tokens) {
  Refusal refusal = FromStatus(service, status, field);
  if (status.code() != StatusCode::kOutOfRange) return refusal;
  refusal.metadata.emplace_back("n_prompt_tokens", StrCat(tokens));
  refusal.metadata.emplace_back("n_ctx", StrCat(service.engine()->Stats().context_length));
  return refusal;
}

}  // namespace

std::shared_ptr<GenerateStream> GenerateStream::Start(boost::asio::io_context& io,
                                                      server::Service& service,
                                                      ::grpc::CallbackServerContext& context,
                                                      const v1::GenerateRequest& message) {
  std::shared_ptr<GenerateStream> stream(new GenerateStream(io, service, context, message));
  stream->self_ = stream;
  stream->Post([s = stream.get()] {
    if (s->finished_) return;  // cancelled before it began
    const auto refusal = s->Begin();
    if (refusal.has_value()) s->Refuse(*refusal);
  });
  return stream;
}

GenerateStream::GenerateStream(boost::asio::io_context& io, server::Service& service,
                               ::grpc::CallbackServerContext& context,
                               const v1::GenerateRequest& message)
    : strand_(boost::asio::make_strand(io)),
      service_(service),
      context_(context),
      message_(message),
      call_(service, context, "Generate", message.request_id()),
      timer_(strand_) {}

template <typename Work>
void GenerateStream::Post(Work work) {
  boost::asio::post(strand_, [self = shared_from_this(), work] { self->Guarded(work); });
}

// What a request makes libraries or the allocator throw ends that request, not the daemon.
template <typename Work>
void GenerateStream::Guarded(Work work) {
  try {
    work();
  } catch (const std::exception& error) {
    base::LogError("id=", call_.id(), ": ", error.what());
    Leave(CancelCause::kDisconnect);
    FinishNow(ToGrpc(FromStatus(service_, base::Internal(""))));
  }
}

std::optional<Refusal> GenerateStream::Begin() {
  if (call_.refusal().has_value()) return call_.refusal();
  auto parsed = ParseGenerate(message_, {.sampling = service_.config().sampling,
                                         .max_tokens = service_.config().max_tokens});
  if (const auto* refusal = std::get_if<Refusal>(&parsed)) return *refusal;
  auto& params = std::get<GenerateParams>(parsed);
  if (!params.model.empty() && params.model != service_.model_name()) {
    return Refusal{
        .code = ::grpc::StatusCode::NOT_FOUND,
        .message = StrCat("the model '", base::Shorten(params.model, kEchoBytesMax),
                          "' does not exist; this server has '", service_.model_name(), "'"),
        .reason = "MODEL_NOT_FOUND"};
  }
  if (auto not_ready = NotReady(service_)) return not_ready;
  // The call's own deadline is not the engine's: OnCancel comes with it, and counts it as one.
  params.request.deadline =
      Earliest({After(params.timeout_s), After(call_.live().config.request_timeout_s)});
  // A place first: what is refused costs no template and no tokens.
  auto admission =
      service_.engine()->Admit({.requests = params.choices,
                                .prompt_bytes = params.prompt_bytes,
                                .deadline = Earliest({call_.deadline(), params.request.deadline}),
                                .tenant = call_.caller().tenant});
  const bool too_many = admission.status().code() == StatusCode::kInvalidArgument;
  if (!admission.ok()) return FromStatus(service_, admission.status(), too_many ? "n" : "");
  place_ = *std::move(admission);
  Encode(std::move(params),
         message_.has_token_ids() || message_.ByteSizeLong() <= server::kBytesAtOnceMax);
  return std::nullopt;
}

void GenerateStream::Encode(GenerateParams params, bool at_once) {
  if (at_once) {
    const Status encoded = EncodePrompt(service_, params);
    return OnEncoded(std::move(params), encoded);
  }
  // The call may end meanwhile, and its message with it.
  const auto job = std::make_shared<std::pair<GenerateParams, Status>>(std::move(params), Status());
  service_.workers().Post(
      strand_,
      [self = shared_from_this(), job] {
        if (!self->finished_ && self->service_.Readiness().ok())
          job->second = EncodeOrFail(self->service_, self->call_.id(), job->first);
      },
      [self = shared_from_this(), job] {
        self->Guarded([&] { self->OnEncoded(std::move(job->first), job->second); });
      },
      [self = shared_from_this()] {
        self->Guarded([&] { self->Refuse(ShuttingDown(self->service_)); });
      });
}

void GenerateStream::OnEncoded(GenerateParams params, const Status& encoded) {
  if (finished_) return;
  auto refusal = NotReady(service_);
  if (!refusal.has_value()) {
    refusal = encoded.ok()
                  ? Submit(std::move(params))
                  : RefusalOf(service_, encoded, InputField(message_), params.prompt_tokens);
  }
  if (refusal.has_value()) Refuse(*refusal);
}

std::optional<Refusal> GenerateStream::Submit(GenerateParams params) {
  auto place = std::exchange(place_, std::nullopt);
  params.request.tenant = call_.caller().tenant;
  params.request.priority = std::min(params.request.priority, call_.caller().priority_max);
  delta_options_ = {.token_ids = params.return_tokens, .logprobs = params.request.logprobs};
  progress_ = params.request.progress;
  speculates_ = service_.engine()->Stats().spec.used;
  v1::Started started;
  started.set_model(service_.model_name());
  started.set_prompt_tokens(static_cast<std::int32_t>(params.request.prompt.size()));
  started.set_choices(params.choices);
  started.set_created(std::time(nullptr));
  // Called on the decode thread: only posts. Holds the stream until the generation ends.
  auto on_ready = [self = shared_from_this()] { self->Post([s = self.get()] { s->Pump(); }); };
  auto generation = server::Generation::Start(service_,
                                              {.id = call_.id(),
                                               .requests = {std::move(params.request)},
                                               .choices = params.choices,
                                               .arrived = call_.arrived()},
                                              &*place, std::move(on_ready));
  if (!generation.ok()) {
    return RefusalOf(service_, generation.status(), FieldOf(generation.status(), message_),
                     static_cast<std::size_t>(started.prompt_tokens()));
  }
  generation_ = *std::move(generation);
  *AddEvent().mutable_started() = std::move(started);
  WatchWrites();
  Pump();
  return std::nullopt;
}

void GenerateStream::Pump() {
  if (generation_ == nullptr || writing_ || gone_ || finished_) return;
  while (events_.empty() && !end_.has_value() && TakeOne()) continue;
  if (!events_.empty()) {
    in_flight_ = std::move(events_.front());
    events_.pop_front();
    writing_ = true;
    write_began_ = Clock::now();
    return StartWrite(&in_flight_);
  }
  if (end_.has_value()) return FinishNow(*end_);
  if (generation_->finished()) FinishNow(::grpc::Status::OK);
}

bool GenerateStream::TakeOne() {
  for (int i = 0; i < generation_->choices(); ++i) {
    const int choice = next_choice_;
    next_choice_ = (next_choice_ + 1) % generation_->choices();
    if (!generation_->Take(choice, update_)) continue;
    AddEvents(choice);
    return true;
  }
  return false;
}

v1::GenerateEvent& GenerateStream::AddEvent() {
  v1::GenerateEvent& event = events_.emplace_back();
  event.set_request_id(call_.id());
  event.set_sequence(sequence_++);
  return event;
}

void GenerateStream::AddEvents(int choice) {
  if (progress_ && update_.prompt_read >= 0) {
    v1::Progress& progress = *AddEvent().mutable_progress();
    progress.set_choice_index(choice);
    progress.set_prompt_tokens_read(update_.prompt_read);
    progress.set_cached_tokens(update_.prompt_cached);
  }
  // Tokens that make no whole character yet are told to those who asked for tokens.
  const bool tokens =
      !update_.tokens.empty() && (delta_options_.token_ids || delta_options_.logprobs >= 0);
  if (!update_.text.empty() || tokens) {
    v1::Delta& delta = *AddEvent().mutable_delta();
    delta.set_choice_index(choice);
    FillDelta(service_.engine()->tokenizer(), delta_options_, update_, delta);
  }
  if (!update_.finished) return;
  if (update_.reason == FinishReason::kError) return EndWith(FromStatus(service_, update_.error));
  if (update_.reason == FinishReason::kCancelled) return EndWith(WhyCancelled());
  v1::Finished& finished = *AddEvent().mutable_finished();
  finished.set_choice_index(choice);
  FillFinished(update_, speculates_, finished);
}

Refusal GenerateStream::WhyCancelled() const {
  switch (update_.usage.cause) {
    case CancelCause::kDeadline:
      return {.code = ::grpc::StatusCode::DEADLINE_EXCEEDED,
              .message = "the request took longer than it may",
              .reason = "DEADLINE_EXCEEDED"};
    case CancelCause::kApi:
      return {.code = ::grpc::StatusCode::CANCELLED,
              .message = "the request was cancelled by its id",
              .reason = "CANCELLED"};
    case CancelCause::kSlowReader:
      return {.code = ::grpc::StatusCode::CANCELLED,
              .message = "the client did not read",
              .reason = "CANCELLED"};
    default:
      return FromStatus(service_, base::Unavailable("the server is shutting down"));
  }
}

void GenerateStream::Refuse(const Refusal& refusal) {
  if (finished_) return;
  CountRejection(service_, refusal);
  FinishNow(ToGrpc(refusal));
}

void GenerateStream::FinishNow(const ::grpc::Status& status) {
  if (finished_) return;
  finished_ = true;
  timer_.cancel();
  place_.reset();
  if (generation_ != nullptr) call_.SetTokens(generation_->prompt_tokens(), generation_->tokens());
  call_.End(status.error_code());
  Finish(status);
  // Choices that go on after another one failed.
  if (generation_ != nullptr && !gone_ && !generation_->finished())
    generation_->Cancel(CancelCause::kOtherChoice);
}

void GenerateStream::Leave(CancelCause cause) {
  gone_ = true;
  events_.clear();
  if (generation_ != nullptr) generation_->Cancel(cause);
}

void GenerateStream::OnWriteDone(bool ok) {
  Post([this, ok] {
    writing_ = false;
    if (ok) Pump();  // else OnCancel comes, too
  });
}

void GenerateStream::OnCancel() {
  Post([this] {
    if (finished_) return;
    const bool late = call_.IsLate();
    Leave(late ? CancelCause::kDeadline : CancelCause::kDisconnect);
    FinishNow(late ? ::grpc::Status(::grpc::StatusCode::DEADLINE_EXCEEDED, "")
                   : ::grpc::Status::CANCELLED);
  });
}

void GenerateStream::OnDone() {
  Post([this] { self_.reset(); });
}

void GenerateStream::WatchWrites() {
  const auto allowed = std::chrono::seconds(call_.live().config.write_timeout_s);
  timer_.expires_at((writing_ ? write_began_ : Clock::now()) + allowed);
  timer_.async_wait([self = shared_from_this(), allowed](boost::system::error_code error) {
    if (!error) self->Guarded([&] { self->CheckWrite(allowed); });
  });
}

void GenerateStream::CheckWrite(std::chrono::seconds allowed) {
  if (finished_) return;
  if (!writing_ || Clock::now() < write_began_ + allowed) return WatchWrites();
  Leave(CancelCause::kSlowReader);
  context_.TryCancel();  // the end would wait behind what is not read
  FinishNow(::grpc::Status::CANCELLED);
}

}  // namespace thermocline::rpc
