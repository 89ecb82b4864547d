#include "engine/sched/request_queue.h"

#include <algorithm>

#include "engine/base/index.h"

namespace thermocline::sched {
namespace {

std::int64_t PromptTokens(const Job& job) { return job.request.prompt.size(); }

// Ends a request that was never begun.
void EndWaiting(Job& job) {
  Usage usage;
  usage.prompt_tokens = base::IntSize(job.request.prompt);
  usage.queue_s = Seconds(SteadyClock::now() - job.submitted);
  const Status error = job.channel->cancelled() ? OkStatus() : LateStatus(job, usage, 0, false);
  FinishEarly(job, usage, "", error);
}

}  // namespace

// `alone`: the tenant has no waiting request.
bool RequestQueue::HasRoom(int requests, std::int64_t tokens, bool alone) const {
  const int taken = base::IntSize(waiting_) + reserved_;
  if (taken + requests > limits_.requests * (alone ? 2 : 1)) return false;
  return limits_.tokens == 0 || alone || tokens_ + requests * tokens <= limits_.tokens;
}

Status RequestQueue::Reserve(int requests, std::int64_t tokens, const std::string& tenant) {
  const base::MutexLock lock(mutex_);
  if (HasRoom(requests, tokens, !places_.contains(tenant))) {
    places_[tenant] += requests;
    reserved_ += requests;
    tokens_ += requests * tokens;
    return OkStatus();
  }
  const int taken = base::IntSize(waiting_) + reserved_;
  if (taken + requests > limits_.requests) {
    return base::ResourceExhausted("the queue is full: ", taken, " of at most ", limits_.requests,
                                   " requests are waiting",
                                   requests > 1 ? StrCat(", and ", requests, " more came") : "",
                                   "; try again later")
        .WithReason(Reason::kQueueFull);
  }
  return base::ResourceExhausted("the queue is full: prompts of about ", tokens_,
                                 " tokens are waiting, and about ", requests * tokens,
                                 " more came; at most ", limits_.tokens,
                                 " may wait; try again later")
      .WithReason(Reason::kPrefillBudget);
}

void RequestQueue::Unreserve(int requests, std::int64_t tokens, const std::string& tenant) {
  const base::MutexLock lock(mutex_);
  ReleasePlaces(tenant, requests);
  reserved_ -= requests;
  tokens_ -= requests * tokens;
}

void RequestQueue::ReleasePlaces(const std::string& tenant, int requests) {
  const auto found = places_.find(tenant);
  CHECK(found != places_.end() && found->second >= requests);
  if ((found->second -= requests) == 0) places_.erase(found);
}

void RequestQueue::Push(Job job, std::int64_t reserved_tokens) {
  Jobs arriving;  // operations that may throw come before any change
  arriving.push_back(std::move(job));
  {
    const base::MutexLock lock(mutex_);
    live_.emplace(arriving.front().channel, arriving.front().request.tenant);
    --reserved_;
    tokens_ += PromptTokens(arriving.front()) - reserved_tokens;
    arriving.front().number = ++arrivals_;
    waiting_.splice(waiting_.end(), arriving);
    UpdateDeadline();
    notified_ = true;
  }
  changed_.NotifyOne();
}

Job RequestQueue::Extract(Jobs::iterator at) {
  Job job = std::move(*at);
  waiting_.erase(at);
  ReleasePlaces(job.request.tenant, 1);
  tokens_ -= PromptTokens(job);
  UpdateDeadline();
  return job;
}

std::optional<Job> RequestQueue::Pop(std::uint64_t number) {
  const base::MutexLock lock(mutex_);
  const auto at = std::find_if(waiting_.begin(), waiting_.end(),
                               [number](const Job& job) { return job.number == number; });
  if (at == waiting_.end()) return std::nullopt;
  return Extract(at);
}

void RequestQueue::NotifyScheduler(TokenChannel& channel) {
  std::optional<Job> ended;
  {
    const base::MutexLock lock(mutex_);
    const auto at = std::find_if(waiting_.begin(), waiting_.end(), [&channel](const Job& job) {
      return job.channel.get() == &channel;
    });
    if (at != waiting_.end() && channel.cancelled()) {
      ended = Extract(at);
      live_.erase(ended->channel);
    }
    notified_ = true;
  }
  changed_.NotifyOne();
  if (ended.has_value()) EndWaiting(*ended);
}

void RequestQueue::CancelAll(CancelCause cause) {
  std::vector<std::shared_ptr<TokenChannel>> channels;
  {
    const base::MutexLock lock(mutex_);
    for (const auto& live : live_) channels.push_back(live.first);
  }
  for (const auto& channel : channels) channel->Cancel(cause);
}

void RequestQueue::Close() {
  {
    const base::MutexLock lock(mutex_);
    closed_ = true;
  }
  changed_.NotifyAll();
}

bool RequestQueue::closed() const {
  const base::MutexLock lock(mutex_);
  return closed_;
}

void RequestQueue::RemoveChannel(const std::shared_ptr<TokenChannel>& channel) {
  const base::MutexLock lock(mutex_);
  live_.erase(channel);
}

void RequestQueue::UpdateDeadline() {
  auto next = SteadyClock::time_point::max();
  for (const Job& job : waiting_) next = std::min(next, job.request.deadline.value_or(next));
  next_deadline_ = next.time_since_epoch().count();
}

void RequestQueue::ExpireLate(SteadyClock::time_point now) {
  if (now.time_since_epoch().count() < next_deadline_.load(std::memory_order_relaxed)) return;
  std::vector<Job> late;
  {
    const base::MutexLock lock(mutex_);
    for (auto at = waiting_.begin(); at != waiting_.end();) {
      const auto next = std::next(at);
      if (IsLate(*at, now)) {
        live_.erase(at->channel);
        late.push_back(Extract(at));
      }
      at = next;
    }
  }
  for (Job& job : late) EndWaiting(job);
}

void RequestQueue::Wait(std::optional<SteadyClock::time_point> until) {
  const base::MutexLock lock(mutex_);
  const SteadyClock::time_point deadline{SteadyClock::duration(next_deadline_.load())};
  const auto next = std::min(deadline, until.value_or(SteadyClock::time_point::max()));
  while (!closed_ && !notified_) {
    if (next == SteadyClock::time_point::max()) {
      changed_.Wait(mutex_);
    } else if (!changed_.WaitUntil(mutex_, next)) {
      return;
    }
  }
}

RequestQueue::Limits RequestQueue::limits() const {
  const base::MutexLock lock(mutex_);
  return limits_;
}

void RequestQueue::SetLimits(const Limits& limits) {
  const base::MutexLock lock(mutex_);
  limits_ = limits;
}

RequestQueue::Counts RequestQueue::counts() const {
  const base::MutexLock lock(mutex_);
  const int requests = base::IntSize(waiting_);
  return {.requests = requests, .reserved = reserved_, .tokens = tokens_};
}

bool RequestQueue::HasTenant(const std::string& tenant) const {
  const base::MutexLock lock(mutex_);
  return std::any_of(live_.begin(), live_.end(),
                     [&tenant](const auto& live) { return live.second == tenant; });
}

}  // namespace thermocline::sched
