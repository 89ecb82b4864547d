#include "engine/sched/scheduler.h"

#include <algorithm>
#include <deque>
#include <new>
#include <utility>

#include "engine/base/index.h"
#include "engine/base/out_of_memory.h"

namespace thermocline::sched {
namespace {

void Mean(std::atomic<double>& mean, double value) {
  const double before = mean.load(std::memory_order_relaxed);
  mean.store(before == 0 ? value : 0.8 * before + 0.2 * value, std::memory_order_relaxed);
}

// Ends a request for which there is no memory.
void EndWithoutMemory(TokenChannel& channel, const Usage& usage) {
  base::UntilMemory([&] {
    channel.Finish(
        FinishReason::kError, "", usage,
        base::Unavailable("this machine has no memory left for the request; try again later"));
  });
}

}  // namespace

TurnOrder::Candidate Scheduler::CandidateOf(const Sequence& s) {
  return {.priority = s.job.request.priority,
          .tenant = s.job.request.tenant,
          .begun = s.started,
          .since = s.started ? s.last_turn : s.job.number};
}

Scheduler::Scheduler(const Params& params)
    : params_(params),
      answers_(params.loop.answers),
      loop_([&] {
        DecodeLoop::Params loop = params.loop;
        loop.yield = [this](double spent, TurnOrder::Turn turn) {
          return ShouldYield(spent, turn);
        };
        loop.crowded = [this] {
          return sequences_.size() > 1 || params_.queue.counts().requests > 0;
        };
        loop.token_s = [this] { return budget_.token_s(); };
        loop.make_room = [this](const nn::KvCount& blocks) { return MakeRoom(blocks); };
        return loop;
      }()),
      shared_(params.shared),
      budget_(params.itl_target_s) {}

Scheduler::~Scheduler() = default;

void Scheduler::Run() {
  for (bool more = true; more;) {
    try {
      more = RunNext();
    } catch (const std::bad_alloc&) {
      EndAll();
    }
  }
}

bool Scheduler::RunNext() {
  params_.queue.TakeNotification();
  ExpireSequences();
  if (RunSharedStep()) return true;
  const std::optional<Choice> choice =
      next_.has_value() ? std::exchange(next_, {}) : Choose(nullptr);
  if (!choice.has_value()) {
    if (params_.queue.closed() && sequences_.empty() && params_.queue.counts().requests == 0)
      return false;
    if (sequences_.empty() && params_.on_idle) params_.on_idle();
    params_.queue.Wait(NextTimeout());
  } else if (choice->sequence != nullptr) {
    RunTurn(*choice->sequence);
  } else if (Sequence* new_request = BeginQueued(choice->number); new_request != nullptr) {
    RunTurn(*new_request);
  }
  return true;
}

void Scheduler::EndAll() {
  current_ = nullptr;
  next_.reset();
  params_.loop.transformer.SetOnWait({});
  params_.loop.cache.Clear();
  while (!sequences_.empty()) {
    Sequence& s = *sequences_.back();
    try {
      shared_.ReleaseDecoder(s);
    } catch (const std::bad_alloc&) {
      s.decoder.reset();  // destroyed, because reusing it needs memory
    }
    s.cache.Clear();
    EndWithoutMemory(*s.job.channel, s.usage);
    params_.queue.RemoveChannel(s.job.channel);
    sequences_.pop_back();
  }
  Publish();
}

Sequence* Scheduler::BeginQueued(std::uint64_t number) {
  std::optional<Job> job = params_.queue.Pop(number);
  if (!job.has_value()) return nullptr;
  const std::shared_ptr<TokenChannel> channel = job->channel;
  channel->Begin();
  try {
    return Begin(*std::move(job));
  } catch (const std::bad_alloc&) {
    params_.queue.RemoveChannel(channel);
    EndWithoutMemory(*channel, {});
    return nullptr;
  }
}

Sequence* Scheduler::Begin(Job job) {
  const Request& request = job.request;
  auto modes = params_.model.ModesFor(request.ffn_mode, request.kl_max,
                                      request.adapter_scales.value_or(std::vector<float>{}));
  CHECK(modes.ok());  // Submit has checked the modes
  const int rank = RankOf(job.request.tenant);
  sequences_.push_back(std::make_unique<Sequence>(std::move(job), params_.pool,
                                                  params_.loop.cache.capacity(),
                                                  answers_.tokenizer(), *std::move(modes)));
  sequences_.back()->rank = rank;
  sequences_.back()->last_turn = turns_;
  Publish();
  return sequences_.back().get();
}

void Scheduler::RunTurn(Sequence& s) {
  const bool new_request = !s.started;
  shared_.ReleaseDecoder(s);
  current_ = &s;
  charged_at_ = 0;
  next_timeout_ = NextTimeout().value_or(SteadyClock::time_point::max());
  const double decoding_s = s.usage.decode_s;
  const int decoded = std::max(1, s.usage.completion_tokens);  // the first is the prompt's
  const TurnEnd end = loop_.Run(s);
  budget_.AddAlone(s.usage.completion_tokens - decoded, s.usage.decode_s - decoding_s);
  current_ = nullptr;
  s.last_turn = ++turns_;
  order_.AddServedTokens(s.job.request.tenant, loop_.spent() - charged_at_, new_request);
  if (end == TurnEnd::kReaderSlow) s.paused_since = SteadyClock::now();
  if (end == TurnEnd::kYielded || end == TurnEnd::kNoMemory) {
    ++s.usage.preemptions;
    ++figures_.preemptions;
  }
  if (end == TurnEnd::kCacheLost) {
    for (const auto& each : sequences_) each->cache.Clear();
  }
  if (end == TurnEnd::kFinished || end == TurnEnd::kCacheLost) {
    UpdateEstimates(s);
    Remove(s);
  }
  Publish();
  if (params_.on_turn) params_.on_turn();
}

void Scheduler::UpdateEstimates(const Sequence& s) {
  const int computed = s.usage.prompt_tokens - s.usage.cached_tokens;
  if (computed > 0 && s.usage.phase == Phase::kDecode)
    Mean(figures_.prompt_token_s, (s.usage.prefill_s - s.usage.restore_s) / computed);
  if (answers_.flash() != nullptr) answers_.flash()->SetComputeSeconds(figures_.prompt_token_s);
  if (s.usage.completion_tokens > 1) {
    Mean(figures_.token_s, s.usage.decode_s / (s.usage.completion_tokens - 1));
    Mean(figures_.answer_tokens, s.usage.completion_tokens);
  }
}

void Scheduler::Remove(const Sequence& s) {
  params_.queue.RemoveChannel(s.job.channel);
  if (next_.has_value() && next_->sequence == &s) next_.reset();
  for (const auto& other : sequences_) {
    const bool behind = other->rank > s.rank && other->job.request.tenant == s.job.request.tenant;
    if (behind) --other->rank;
  }
  std::erase_if(sequences_, [&s](const auto& each) { return each.get() == &s; });
}

void Scheduler::ExpireSequences() {
  const auto now = SteadyClock::now();
  params_.queue.ExpireLate(now);
  const std::chrono::duration<double> patience(params_.reader_timeout_s);
  for (std::size_t i = 0; i < sequences_.size();) {
    Sequence& s = *sequences_[i++];
    if (&s == current_) continue;
    TokenChannel& channel = *s.job.channel;
    if (s.paused_since.has_value() && !channel.full()) s.paused_since.reset();
    if (s.paused_since.has_value() && params_.reader_timeout_s > 0 &&
        now - *s.paused_since >= patience && !channel.cancelled())
      channel.Cancel(CancelCause::kSlowReader);
    if (!channel.cancelled() && !IsLate(s.job, now)) continue;
    shared_.ReleaseDecoder(s);
    s.error = {};
    answers_.Finish(s, s.cache, Stop::kCancelled);
    Remove(s);
    --i;
  }
  next_timeout_ = NextTimeout().value_or(SteadyClock::time_point::max());
  Publish();
}

std::optional<SteadyClock::time_point> Scheduler::NextTimeout() const {
  std::optional<SteadyClock::time_point> next;
  const auto add = [&next](SteadyClock::time_point at) { next = std::min(next.value_or(at), at); };
  for (const auto& s : sequences_) {
    if (s.get() == current_) continue;  // the decode loop checks its own deadline
    if (s->job.request.deadline.has_value()) add(*s->job.request.deadline);
    if (s->paused_since.has_value() && params_.reader_timeout_s > 0)
      add(*s->paused_since + std::chrono::duration_cast<SteadyClock::duration>(
                                 std::chrono::duration<double>(params_.reader_timeout_s)));
  }
  return next;
}

// Chooses the next candidate to compute. With `current`, the sequence whose turn it is: returns the
// one that takes over, if any.
std::optional<Scheduler::Choice> Scheduler::Choose(const Sequence* current, TurnOrder::Turn turn) {
  std::vector<TurnOrder::Candidate> candidates;
  std::vector<Choice> choices;
  const auto waits = [&](const Request& request) {
    if (current == nullptr || turn != TurnOrder::Turn::kEndsForOthers) return false;
    const Request& now = current->job.request;
    return request.tenant == now.tenant && request.priority <= now.priority;
  };
  for (const auto& s : sequences_) {
    if (s.get() == current || !MayCompute(*s) || waits(s->job.request)) continue;
    candidates.push_back(CandidateOf(*s));
    choices.push_back({.sequence = s.get()});
  }
  std::deque<std::string> tenants;  // owns the names, because the queue may change after the visit
  params_.queue.ForEach([&](const Job& job) {
    const Request& request = job.request;
    if (waits(request) || !MayBegin(request) || !Fits(job) || IsBeingPrefilled(request)) return;
    candidates.push_back({.priority = job.request.priority,
                          .tenant = tenants.emplace_back(job.request.tenant),
                          .begun = false,
                          .since = job.number});
    choices.push_back({.number = job.number});
  });
  if (candidates.empty()) return std::nullopt;
  if (current != nullptr) candidates.push_back(CandidateOf(*current));
  order_.Update(candidates);
  const std::size_t next = order_.Next(std::span(candidates).first(choices.size()));
  if (current != nullptr && order_.KeepsTurn(candidates.back(), candidates[next]))
    return std::nullopt;
  return choices[next];
}

// Called before each step of a turn.
bool Scheduler::ShouldYield(double spent, TurnOrder::Turn turn) {
  params_.queue.ExpireLate(SteadyClock::now());
  if (params_.queue.TakeNotification() || SteadyClock::now() >= next_timeout_) ExpireSequences();
  if (HasBatch()) return true;
  if (params_.quantum_tokens == 0) return false;
  if (turn == TurnOrder::Turn::kLasts && spent - charged_at_ < params_.quantum_tokens) return false;
  order_.AddServedTokens(current_->job.request.tenant, spent - charged_at_, !current_->started);
  charged_at_ = spent;
  next_ = Choose(current_, turn);
  return next_.has_value();
}

// Returns true if one more request may begin. Requests with slow readers do not count, and the
// requests of one client block neither another client nor a higher priority.
bool Scheduler::MayBegin(const Request& request) const {
  int begun = 0;
  bool apart = true;
  for (const auto& s : sequences_) {
    if (s->paused_since.has_value()) continue;
    ++begun;
    const Request& other = s->job.request;
    apart = apart && (other.tenant != request.tenant || other.priority < request.priority);
  }
  return begun < params_.sequences_max || (apart && begun < 2 * params_.sequences_max);
}

// Returns true if another request of the same owner is prefilling the same prompt, which both
// share. Owners learn nothing of each other's prompts, not even by waiting.
bool Scheduler::IsBeingPrefilled(const Request& request) const {
  if (!request.share_prompt) return false;
  return std::any_of(sequences_.begin(), sequences_.end(), [&request](const auto& s) {
    return s->usage.phase != Phase::kDecode && s->job.request.share_prompt &&
           s->job.request.prefix_owner == request.prefix_owner &&
           s->job.request.priority >= request.priority && s->job.request.prompt == request.prompt;
  });
}

// Returns the number of sequences of `tenant` that have not ended.
int Scheduler::RankOf(const std::string& tenant) const {
  return static_cast<int>(
      std::count_if(sequences_.begin(), sequences_.end(),
                    [&tenant](const auto& s) { return s->job.request.tenant == tenant; }));
}

bool Scheduler::Fits(const Job& job) const {
  const Seniority seniority{RankOf(job.request.tenant), job.number};
  return Fits(nullptr, seniority, TokensAtOnce(job.request));
}

bool Scheduler::Fits(const Sequence* self, Seniority seniority, std::size_t tokens) const {
  const nn::KvPool& pool = params_.pool;
  const int window = nn::WindowBlocks(pool.window());  // passed blocks are released
  nn::KvCount held;
  for (const auto& s : sequences_) {
    const bool computing = s.get() == current_;
    if (s.get() == self || s->seniority() > seniority || s->paused_since.has_value()) continue;
    const nn::KvCount has = (computing ? params_.loop.cache : s->cache).held();
    // A sequence that has not started yet counts with its whole prompt.
    held.whole +=
        s->started ? has.whole : nn::BlocksFor(static_cast<int>(TokensAtOnce(s->job.request))) + 1;
    held.window += std::min(has.window, window);
    ++held.states;
  }
  const int capacity = params_.loop.cache.capacity();
  const int length =
      std::min(capacity, static_cast<int>(tokens) + params_.quantum_tokens + kDraftTokensMax);
  const int wanted = nn::BlocksFor(length) + 1;
  const bool windows_fit = pool.window() == 0 || std::min(wanted, window) <=
                                                     pool.blocks(nn::KvKind::kWindow) - held.window;
  const nn::StatePool& states = pool.states();
  const bool states_fit = !states.layout().any() || held.states < states.states();
  return held.whole == 0 || (wanted <= pool.blocks() - held.whole && windows_fit && states_fit);
}

// Window blocks behind the window are dropped from begun sequences first, starting with the one
// being computed: the blocks that finished requests left are prefixes for later requests.
void Scheduler::DropPassed(int blocks) {
  params_.loop.cache.DropPassed(blocks);
  for (const auto& s : sequences_) s->cache.DropPassed(blocks);
}

bool Scheduler::MakeRoom(const nn::KvCount& blocks) {
  nn::PrefixCache* prefixes = answers_.prefixes();
  DropPassed(blocks.window);
  if (params_.pool.HasFree(blocks)) return true;
  if (answers_.flash() != nullptr) answers_.flash()->ReleaseWritten();
  while (!params_.pool.HasFree(blocks)) {
    if (prefixes != nullptr && prefixes->MakeRoom(blocks)) return true;
    if (answers_.flash() != nullptr) answers_.flash()->MakeRoom(blocks);
    if (params_.pool.HasFree(blocks)) return true;
    // Sequences with a slow reader go first, then the least senior.
    const auto order = [](const Sequence& s) {
      return std::pair(s.paused_since.has_value(), s.seniority());
    };
    Sequence* victim = nullptr;
    for (const auto& s : sequences_) {
      if (s.get() == current_ || s->cache.blocks().empty()) continue;
      if (victim == nullptr || order(*s) > order(*victim)) victim = s.get();
    }
    if (victim == nullptr) return false;  // the sequences that share the step need all of it
    if (!victim->paused_since.has_value() && victim->seniority() < current_->seniority())
      return false;
    answers_.Suspend(*victim, victim->cache);
    shared_.ReleaseDecoder(*victim);
  }
  return true;
}

void Scheduler::Publish() {
  int paused = 0;
  for (const auto& s : sequences_) paused += s->paused_since.has_value() ? 1 : 0;
  figures_.begun = base::IntSize(sequences_);
  figures_.paused = paused;
  figures_.kv_used_bytes = params_.pool.used_bytes();
  figures_.kv_tokens = (params_.pool.blocks() - params_.pool.free_blocks()) * kernels::kKvBlock;
}

double Scheduler::RetryAfterS(const RequestQueue::Counts& queued) const {
  const int requests = queued.places() + figures_.begun;
  if (requests == 0) return 1;
  // A place becomes free when a begun request ends: after about one request's share of all the
  // work.
  return static_cast<double>(queued.tokens) * figures_.prompt_token_s / requests +
         figures_.answer_tokens * figures_.token_s;
}

double Scheduler::WaitS(const RequestQueue::Counts& queued, bool new_tenant) const {
  const int begun = figures_.begun;
  // New and begun requests alternate, and among new requests the tenant that was served least comes
  // first.
  if (new_tenant && params_.quantum_tokens > 0)
    return begun + queued.places() == 0 ? 0 : 2 * params_.quantum_tokens * figures_.token_s;
  const double prompts = static_cast<double>(queued.tokens) * figures_.prompt_token_s;
  if (params_.quantum_tokens > 0 && begun + queued.places() < params_.sequences_max) {
    const int turns = begun == 0 && queued.places() == 0 ? 0 : 1 + 2 * queued.places();
    return turns * params_.quantum_tokens * figures_.token_s + prompts;
  }
  const int ahead =
      queued.places() + begun - (params_.quantum_tokens > 0 ? params_.sequences_max - 1 : 0);
  return std::max(0, ahead) * figures_.answer_tokens * figures_.token_s + prompts;
}

}  // namespace thermocline::sched
