#include "server/core/generation.h"

#include <algorithm>

#include "engine/base/log.h"
#include "server/core/refusal_table.h"
#include "server/core/service.h"

namespace thermocline::server {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// Each choice has its own random seed. The first uses the request's seed, so that it equals the
// answer of a request with one choice.
std::uint64_t SeedOf(std::uint64_t seed, int choice) { return seed + 0x9E3779B97F4A7C15U * choice; }

}  // namespace

Status FailureOf(const TokenChannel::Update& update) {
  if (update.reason == FinishReason::kError) return update.error;
  switch (update.usage.cause) {
    case CancelCause::kDeadline:
      return TimeIsOver();
    case CancelCause::kApi:
      return base::Cancelled("the request was cancelled by its id");
    case CancelCause::kSlowReader:
      return NotRead();
    default:
      return ShuttingDown();
  }
}

Status TooManyConnections(int connections_max) {
  return base::ResourceExhausted("other connections of this key are as many as one key may have, ",
                                 connections_max, " of server.connections_max; close some")
      .WithReason(Reason::kConnections);
}

Status NotRead() { return base::Cancelled("the client did not read its answer for too long"); }

Status TimeIsOver() { return base::DeadlineExceeded("the time that the request may take is over"); }

Status ShuttingDown() {
  return base::Unavailable("the server is shutting down").WithReason(Reason::kDraining);
}

Status ClientGone() {
  return base::Cancelled("the client has left").WithReason(Reason::kClientGone);
}

Generation::Generation(Service& service, const EncodedRequest& request,
                       std::function<void()> on_ready)
    : service_(service),
      id_(request.id),
      tenant_(request.requests.front().tenant),
      arrived_(request.arrived),
      on_ready_(std::move(on_ready)),
      choices_(request.requests.size() * request.choices) {
  for (const Request& each : request.requests) prompt_tokens_ += each.prompt.size();
}

Generation::~Generation() { service_.RemoveGeneration(*this); }

Result<std::shared_ptr<Generation>> Generation::Start(Service& service,
                                                      const EncodedRequest& request,
                                                      Engine::Admission* admission,
                                                      std::function<void()> on_ready) {
  const std::vector<Request>& requests = request.requests;
  const std::size_t choices = request.choices;
  CHECK(choices >= 1 && !requests.empty() && requests.size() * choices <= kChoicesMax);
  std::shared_ptr<Generation> generation(new Generation(service, request, std::move(on_ready)));
  // Registered before the first token, so that the list holds every running generation.
  service.AddGeneration(generation);
  for (std::size_t i = 0; i < generation->choices_.size(); ++i) {
    Request each = requests[i / choices];
    each.sampling.seed = SeedOf(each.sampling.seed, static_cast<int>(i % choices));
    each.share_prompt = choices > 1;
    // The callback keeps the generation alive until the choice's end is taken, which resets the
    // channel.
    auto channel = service.engine()->Submit(
        std::move(each), [generation, i] { generation->OnReady(i); }, admission);
    if (!channel.ok()) {
      generation->Cancel(CancelCause::kDisconnect);
      return channel.status();
    }
    CancelCause cause;
    {
      const base::MutexLock lock(generation->mutex_);
      generation->choices_[i].channel = *channel;
      cause = generation->cause_;
    }
    // Cancelled by id before the channel existed.
    if (cause != CancelCause::kNone) (*channel)->Cancel(cause);
  }
  return generation;
}

bool Generation::TakeUpdate(int index, TokenChannel::Update& update) {
  const base::MutexLock taking(take_mutex_);
  return TakeUpdateLocked(choices_[index], update);
}

bool Generation::TakeUpdateLocked(Choice& choice, TokenChannel::Update& update) {
  std::shared_ptr<TokenChannel> channel;
  {
    const base::MutexLock lock(mutex_);
    channel = choice.channel;
  }
  if (channel == nullptr || !channel->TakeUpdate(update)) return false;
  if (update.finished) update.usage.energy_j = Joules(update.usage);
  Observe(choice, update);
  return true;
}

bool Generation::begun() const {
  const base::MutexLock lock(mutex_);
  return finished_ > 0 || std::any_of(choices_.begin(), choices_.end(), [](const Choice& choice) {
           return choice.channel != nullptr && choice.channel->begun();
         });
}

std::optional<TokenChannel::Waiting> Generation::rest() const {
  TokenChannel::Waiting rest;
  const base::MutexLock lock(mutex_);
  for (const Choice& choice : choices_) {
    if (choice.channel == nullptr) continue;  // its end was taken
    if (!choice.channel->ended()) return std::nullopt;
    const TokenChannel::Waiting bytes = choice.channel->waiting();
    rest.text += bytes.text;
    rest.numbers += bytes.numbers;
  }
  return rest;
}

void Generation::SetReadCounter(std::shared_ptr<const std::atomic<std::int64_t>> bytes) {
  const base::MutexLock taking(take_mutex_);
  read_bytes_ = std::move(bytes);
}

void Generation::GiveUpUnread(Clock::duration patience) {
  constexpr std::chrono::seconds kLook{3};  // between calls, at most
  constexpr std::int64_t kReadBytesPerS = 64 << 10;
  std::vector<std::shared_ptr<TokenChannel>> channels;
  {
    const base::MutexLock taking(take_mutex_);
    const base::MutexLock lock(mutex_);
    for (const Choice& choice : choices_)
      if (choice.channel != nullptr) channels.push_back(choice.channel);
    const bool behind =
        std::ranges::any_of(channels, [](const auto& channel) { return channel->full(); }) ||
        std::ranges::all_of(channels, [](const auto& channel) { return channel->ended(); });
    if (channels.empty() || !behind) return;
    const auto now = Clock::now();
    const std::int64_t read = read_bytes_ == nullptr ? 0 : read_bytes_->load();
    if (now > behind_at_ + kLook) {
      behind_since_ = now;
      read_before_ = read;
    }
    behind_at_ = now;
    const std::chrono::seconds credit((read - read_before_) / kReadBytesPerS);
    if (now < behind_since_ + patience + credit) return;
  }
  for (const auto& channel : channels) channel->Cancel(CancelCause::kSlowReader);
  for (std::size_t i = 0; i < choices_.size(); ++i) OnReady(i);  // those that ended tell no more
}

bool Generation::given_up() const {
  const base::MutexLock lock(mutex_);
  return std::any_of(choices_.begin(), choices_.end(), [](const Choice& choice) {
    return choice.channel != nullptr && choice.channel->cause() == CancelCause::kSlowReader;
  });
}

void Generation::Cancel(CancelCause cause) {
  std::vector<std::shared_ptr<TokenChannel>> channels;
  // Destroyed after the lock is released: it may hold the last reference to a session, whose
  // destructor calls Cancel.
  std::function<void()> let_go;
  {
    const base::MutexLock lock(mutex_);
    cause_ = cause;
    if (cause == CancelCause::kDisconnect || cause == CancelCause::kDeadline ||
        cause == CancelCause::kSlowReader || cause == CancelCause::kOtherChoice) {
      abandoned_ = true;
      let_go.swap(on_ready_);
    }
    for (const Choice& choice : choices_) channels.push_back(choice.channel);
  }
  for (std::size_t i = 0; i < channels.size(); ++i) {
    if (channels[i] == nullptr) continue;
    channels[i]->Cancel(cause);
    OnReady(i);  // the choice may have ended before
  }
}

void Generation::OnReady(std::size_t index) {
  std::function<void()> on_ready;
  {
    const base::MutexLock lock(mutex_);
    on_ready = on_ready_;
    if (!abandoned_ && !on_ready) return;
  }
  if (on_ready) return on_ready();
  const base::MutexLock taking(take_mutex_);
  TokenChannel::Update update;
  while (TakeUpdateLocked(choices_[index], update)) continue;
}

double Generation::Joules(const Usage& usage) {
  if (usage.begun_at == Clock::time_point()) return 0;  // the choice ended in the queue
  begun_at_ = std::min(begun_at_.value_or(usage.begun_at), usage.begun_at);
  return service_.metrics().Joules(*begun_at_, usage.ended_at).value_or(0);
}

void Generation::Observe(Choice& choice, const TokenChannel::Update& update) {
  Metrics& metrics = service_.metrics();
  tokens_.fetch_add(update.tokens.size(), std::memory_order_relaxed);
  for (const Clock::time_point made_at : update.times) {
    if (choice.last_token_at.has_value()) {
      metrics.InterToken(Seconds(made_at - *choice.last_token_at));
    } else {
      metrics.FirstToken(Seconds(made_at - arrived_));
    }
    choice.last_token_at = made_at;
  }
  if (!update.finished) return;
  const double total_s = Seconds(Clock::now() - arrived_);
  metrics.RequestFinished(update.reason, update.usage, total_s);
  const bool late = update.error.code() == StatusCode::kDeadlineExceeded;
  if (update.reason == FinishReason::kCancelled || late) {
    metrics.RequestCancelled(update.usage.phase, update.usage.cause, update.usage.cancel_s);
  } else if (update.reason == FinishReason::kError) {
    metrics.RequestFailed(RowOf(update.error).failed);
    base::LogError("id=", id_, ": ", update.error.message());
  }
  std::function<void()> let_go;  // destroyed after the lock is released, as in Cancel
  const base::MutexLock lock(mutex_);
  choice.channel.reset();
  if (++finished_ == choices()) let_go.swap(on_ready_);
}

}  // namespace thermocline::server
