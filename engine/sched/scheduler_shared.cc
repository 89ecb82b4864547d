// Composes the steps that sequences share: which sequences take part, and with how many tokens.
//
// The sequences of the highest priority that may compute, and whose layers have the same modes,
// share every step: each answering sequence computes its next token, and prefill gets the rest of
// the step's budget, one sequence after the other. If some sequences cannot take part, they and the
// others alternate in turns of the same length.
#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "engine/base/index.h"
#include "engine/sched/scheduler.h"

namespace thermocline::sched {
namespace {

// Prompt tokens of one sequence before the next one is prefilled.
constexpr int kPrefillTurn = 256;
// Minimum time for masks before a step; half of the last step's time if that is more. The bound
// keeps the pace of sequences without masks, however many masks are expensive.
constexpr double kMaskSecondsMin = 0.0005;

int Tenants(const std::vector<Sequence*>& batch) {
  std::set<std::string_view> tenants;
  for (const Sequence* s : batch) tenants.insert(s->job.request.tenant);
  return base::IntSize(tenants);
}

// Sorts so that one sequence of each tenant comes first, then a second one of each. Within a
// tenant, the sequence that has waited longest comes first.
void SortByTurn(std::vector<Sequence*>& batch) {
  std::sort(batch.begin(), batch.end(), [](const Sequence* a, const Sequence* b) {
    return std::tuple(a->last_turn, a->job.number) < std::tuple(b->last_turn, b->job.number);
  });
  std::map<std::string_view, int> seen;
  std::vector<std::pair<int, Sequence*>> ranked;
  ranked.reserve(batch.size());
  for (Sequence* s : batch) ranked.emplace_back(seen[s->job.request.tenant]++, s);
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t i = 0; i < ranked.size(); ++i) batch[i] = ranked[i].second;
}

}  // namespace

// Returns true if the request's steps may be shared such that every token has the bits that it has
// alone.
bool Scheduler::CanShareSteps(const Request& request) const {
  return params_.step_tokens > 1 && !request.embed.has_value() && !request.prompt_logprobs &&
         !(params_.drafts_decide && request.sampling.temperature > 0);
}

bool Scheduler::CanShareSteps(const Sequence& s) const {
  // Tokens that were decoded in a lossy mode are recomputed alone, one by one.
  const nn::KvCache& cache = &s == current_ ? params_.loop.cache : s.cache;
  const bool again = !s.lossless && s.usage.completion_tokens > 0 && cache.length() < s.wanted();
  return !again && CanShareSteps(s.job.request);
}

bool Scheduler::MayCompute(const Sequence& s) const {
  return !s.paused_since.has_value() && !(s.dropped() && !Fits(&s, s.seniority(), s.tokens.size()));
}

// Begins new requests while there are places and memory.
void Scheduler::BeginNewRequests() {
  while (true) {
    std::vector<TurnOrder::Candidate> candidates;
    std::vector<std::uint64_t> numbers;
    std::deque<std::string>
        tenants;  // owns the names, because the queue may change after the visit
    params_.queue.ForEach([&](const Job& job) {
      const Request& request = job.request;
      if (!MayBegin(request) || !Fits(job) || IsBeingPrefilled(request)) return;
      candidates.push_back({.priority = request.priority,
                            .tenant = tenants.emplace_back(request.tenant),
                            .begun = false,
                            .since = job.number});
      numbers.push_back(job.number);
    });
    if (candidates.empty()) return;
    for (const auto& s : sequences_) candidates.push_back(CandidateOf(*s));
    order_.Update(candidates);
    const std::size_t next = order_.Next(std::span(candidates).first(numbers.size()));
    if (!BeginQueued(numbers[next])) return;
  }
}

// Returns the sequences of the highest priority that may compute now.
std::vector<Sequence*> Scheduler::Runnable() const {
  std::vector<Sequence*> runnable;
  for (const auto& s : sequences_) {
    if (s.get() != current_ && !MayCompute(*s)) continue;
    const int priority = s->job.request.priority;
    if (!runnable.empty() && runnable.front()->job.request.priority > priority) continue;
    if (!runnable.empty() && runnable.front()->job.request.priority < priority) runnable.clear();
    runnable.push_back(s.get());
  }
  return runnable;
}

// Returns the sequences of `runnable` that share steps with `leader`, which is one of them.
std::vector<Sequence*> Scheduler::Batch(const std::vector<Sequence*>& runnable,
                                        const Sequence& leader) const {
  std::vector<Sequence*> batch;
  if (!CanShareSteps(leader)) return batch;
  for (Sequence* s : runnable)
    if (CanShareSteps(*s) && s->modes == leader.modes) batch.push_back(s);
  return batch;
}

// Returns true if the current sequence should end its turn to share steps.
bool Scheduler::HasBatch() {
  if (params_.step_tokens < 2) return false;
  BeginNewRequests();
  const auto runnable = Runnable();
  if (std::find(runnable.begin(), runnable.end(), current_) == runnable.end()) return false;
  const auto batch = Batch(runnable, *current_);
  return batch.size() > 1 && budget_.Pays(AnswersMax(batch));
}

// Returns the maximum answers of a step for `batch`.
int Scheduler::AnswersMax(const std::vector<Sequence*>& batch) const {
  return std::min(base::IntSize(batch), params_.step_tokens);
}

bool Scheduler::RunSharedStep() {
  if (params_.step_tokens < 2) return false;
  BeginNewRequests();
  const auto runnable = Runnable();
  if (runnable.size() < 2) return false;
  std::vector<Sequence*> batch = Batch(runnable, *BatchLeader(runnable));
  if (batch.size() < 2) {  // it has a turn alone, and then another sequence leads
    Sequence& alone = *BatchLeader(runnable);
    batch_leader_ = 0;
    next_.reset();
    RunTurn(alone);
    return true;
  }
  if (!budget_.Pays(AnswersMax(batch))) return false;
  if (batch.size() == runnable.size()) batch_steps_ = 0;
  return RunBatch(batch);
}

// Returns the sequence whose batch computes now. It leads for one turn if other sequences cannot
// take part.
Sequence* Scheduler::BatchLeader(const std::vector<Sequence*>& runnable) {
  const auto led = [this](const Sequence* s) { return s->job.number == batch_leader_; };
  auto leader = std::find_if(runnable.begin(), runnable.end(), led);
  if (leader == runnable.end() || batch_steps_ >= std::max(1, params_.quantum_tokens)) {
    std::vector<TurnOrder::Candidate> candidates;
    candidates.reserve(runnable.size());
    for (const Sequence* s : runnable) candidates.push_back(CandidateOf(*s));
    order_.Update(candidates);
    leader = runnable.begin() + order_.Next(candidates);
    batch_leader_ = (*leader)->job.number;
    batch_steps_ = 0;
  }
  return *leader;
}

// Runs one step of the batch. Returns false if there was no memory for any sequence.
bool Scheduler::RunBatch(std::vector<Sequence*>& batch) {
  SortByTurn(batch);
  MakeMasks(batch);
  restores_ = false;
  std::vector<SharedLoop::SequenceStep> steps = ComposeStep(batch);
  MakeRoomFor(steps);
  if (steps.empty()) return masks_wait_ || restores_;
  int answers = 0, read = 0;
  for (const SharedLoop::SequenceStep& step : steps)
    (step.answers() ? answers : read) += step.tokens();
  next_.reset();
  last_step_s_ = shared_.Run(steps);
  budget_.Add(answers, read, last_step_s_);
  if (read == 0 && answers == base::IntSize(steps)) figures_.sharing_gain = budget_.Gain(answers);
  ++batch_steps_;
  ++turns_;
  bool lost = false;
  for (const SharedLoop::SequenceStep& step : steps) {
    lost = lost || step.sequence->error.kv_cache_lost;
    EndStep(step);
  }
  if (lost) {
    for (const auto& each : sequences_) each->cache.Clear();
  }
  Publish();
  if (params_.on_turn) params_.on_turn();
  return true;
}

// Works on the masks of the answering sequences, in their order. A sequence without a complete mask
// skips this step and is charged for the time spent.
void Scheduler::MakeMasks(const std::vector<Sequence*>& batch) {
  std::vector<Sequence*> answering;
  for (Sequence* s : batch)
    if (s->answers()) answering.push_back(s);
  shared_.MakeMasks(answering, std::max(kMaskSecondsMin, last_step_s_ / 2));
  masks_wait_ = false;
  for (Sequence* s : answering) {
    if (SharedLoop::IsMasked(*s)) continue;
    masks_wait_ = true;
    (void)answers_.ShouldContinue(s->job);  // increments the heartbeat
    Charge(*s, 0, s->decoder->sampler().TakeSeconds());
  }
}

// Charges the tenant for tokens and for the time of drawing them.
void Scheduler::Charge(const Sequence& s, double tokens, double sampling_s) {
  const double token_s = budget_.token_s();
  const double more = token_s > 0 ? sampling_s / token_s : 0;
  order_.AddServedTokens(s.job.request.tenant, tokens + more, false);
}

// Composes the next step: answering sequences, then prefill, if the modes allow both in one step.
// Otherwise steps of either kind alternate.
std::vector<SharedLoop::SequenceStep> Scheduler::ComposeStep(std::vector<Sequence*>& batch) {
  const bool lossless = batch.front()->lossless, mixes = lossless && params_.mixes;
  const int widest =
      mixes ? params_.step_tokens : std::min(params_.step_tokens, ffn::kSparseTokensMax);
  std::vector<Sequence*> prefilling;
  std::vector<SharedLoop::SequenceStep> steps;
  for (Sequence* s : batch)
    if (!s->answers()) prefilling.push_back(s);
  const int room = mixes && !prefilling.empty() ? RoomForAnswers() : widest;
  const int fair = budget_.AnswersMax(Tenants(batch), widest);
  const int most = std::min({fair, room, params_.parts_max});
  for (Sequence* s : batch)
    if (s->answers() && SharedLoop::IsMasked(*s) && base::IntSize(steps) < most)
      steps.push_back({s});
  const bool reads =
      !prefilling.empty() && (mixes || steps.empty() || !std::exchange(prefilled_last_, true));
  if (!reads) {
    prefilled_last_ = false;
    AddDrafts(fair, steps);
    return steps;
  }
  if (!mixes) steps.clear();
  AddPrefill(prefilling, steps);
  return steps;
}

// Adds draft tokens where verifying one is worth its time, in steps without prefill. The step has
// at most `most` tokens: as many as answers, since a client's drafts delay others' tokens as its
// answers do.
void Scheduler::AddDrafts(int most, std::vector<SharedLoop::SequenceStep>& steps) {
  if (!params_.drafts) return;
  int left = std::min(most, params_.loop.logits_max) - base::IntSize(steps);
  const double needed = budget_.DraftProbabilityMin(base::IntSize(steps));
  for (SharedLoop::SequenceStep& step : steps) {
    if (left < 1) return;
    shared_.Draft(step, std::min(left, kSparseDraftTokensMax), needed);
    left -= step.draft;
  }
}

// Returns the maximum answers of a step that leaves room for some prefill.
int Scheduler::RoomForAnswers() const {
  constexpr int kPrefillTokens = 8;
  const int tokens = params_.prefill_tokens_max;
  return std::max(
      1, std::min(params_.loop.logits_max - 1, tokens - std::min(kPrefillTokens, tokens / 2)));
}

// Moves the sequence to the front whose tenant was served least. Within a tenant, in every second
// step the sequence that has waited longest comes first, and in the others the one with the
// shortest rest of its prompt, since prefill is all that it waits for.
void Scheduler::PutNextPrefillFirst(std::vector<Sequence*>& prefilling) const {
  std::vector<TurnOrder::Candidate> candidates;
  candidates.reserve(prefilling.size());
  for (const Sequence* s : prefilling)
    candidates.push_back(
        {.priority = s->job.request.priority,
         .tenant = s->job.request.tenant,
         .begun = true,
         .since = turns_ % 2 == 0 ? s->last_turn
                                  : static_cast<std::uint64_t>(s->wanted() - s->cache.length())});
  const std::ptrdiff_t first = order_.Next(candidates);
  std::rotate(prefilling.begin(), prefilling.begin() + first, prefilling.begin() + first + 1);
}

void Scheduler::AddPrefill(std::vector<Sequence*>& prefilling,
                           std::vector<SharedLoop::SequenceStep>& steps) {
  const int answers = base::IntSize(steps);
  const int most = params_.prefill_tokens_max - answers;
  if (prefilling.size() > 1) PutNextPrefillFirst(prefilling);
  int waiting = 0;
  for (const Sequence* s : prefilling) waiting += s->wanted() - s->cache.length();
  int left = budget_.PrefillTokens(answers, waiting, most);
  int rows = params_.loop.logits_max - answers;
  bool restored = false;  // the other answers wait for one slice a step, however many restore
  for (Sequence* s : prefilling) {
    if (left < 1 || rows < 1 || base::IntSize(steps) >= params_.parts_max) return;
    if (s->cache.length() == 0) answers_.RestorePrefix(*s, s->cache);
    if (s->restoring.has_value() && (std::exchange(restored, true) || !Restore(*s))) continue;
    if (s->answers()) continue;  // the prefix cache had all of it: it answers from the next step on
    const AnswerSteps::Chunk chunk = answers_.NextChunk(*s, s->cache, left);
    if (chunk.last && !shared_.MakeMask(*s)) {  // its first token could not be drawn
      masks_wait_ = true;
      continue;
    }
    left -= base::IntSize(chunk.tokens);
    rows -= chunk.rows();
    steps.push_back({s, chunk});
  }
}

// Restores a slice of the sequence's prefix from flash. Returns true if it is complete.
bool Scheduler::Restore(Sequence& s) {
  current_ = &s;
  const bool room = MakeRoom(prefix::FlashPrefixes::Wanted(*s.restoring));
  current_ = nullptr;
  if (!room) {
    s.restoring.reset();
    s.cache.Clear();
    return false;
  }
  const StepTimer timer;
  if (s.usage.phase == Phase::kQueued) s.usage.phase = Phase::kPrefill;
  answers_.Restore(s, s.cache);
  s.usage.prefill_s += timer.elapsed();
  (void)answers_.ShouldContinue(s.job);  // increments the heartbeat
  Charge(s, 0, timer.elapsed());
  restores_ = true;
  return !s.restoring.has_value();
}

// Reserves memory, the most senior sequence first. A sequence without room releases its KV cache
// and does not take part.
void Scheduler::MakeRoomFor(std::vector<SharedLoop::SequenceStep>& steps) {
  std::sort(steps.begin(), steps.end(), [](const auto& a, const auto& b) {
    return a.sequence->seniority() < b.sequence->seniority();
  });
  nn::KvCount wanted;
  for (SharedLoop::SequenceStep& step : steps) {
    Sequence& s = *step.sequence;
    if (s.cache.length() != (step.answers() ? s.wanted() : step.read.at)) {
      step.why = Stop::kNoMemory;  // a more senior sequence took its memory
      continue;
    }
    const nn::KvCount more = s.cache.BlocksWanted(step.tokens());
    current_ = &s;
    const bool room = MakeRoom(
        {wanted.whole + more.whole, wanted.window + more.window, wanted.states + more.states});
    current_ = nullptr;
    if (room) {
      wanted.whole += more.whole;
      wanted.window += more.window;
      wanted.states += more.states;
    } else {
      answers_.Suspend(s, s.cache);
      step.why = Stop::kNoMemory;
      ++s.usage.preemptions;
      ++figures_.preemptions;
    }
  }
  std::erase_if(steps, [](const auto& step) { return step.why != Stop::kNone; });
}

void Scheduler::EndStep(const SharedLoop::SequenceStep& step) {
  Sequence& s = *step.sequence;
  const bool read = !step.answers();
  Charge(s, step.tokens() * (read ? kPromptTokenShare : 1), step.sampling_s);
  if (read) s.prefilled_since += step.tokens();
  if (!read || s.prefilled_since >= kPrefillTurn) {
    s.last_turn = turns_;
    s.prefilled_since = 0;
  }
  if (step.why == Stop::kNone) {
    if (!s.job.channel->full()) return;
    s.paused_since = SteadyClock::now();
    shared_.ReleaseDecoder(s);
    return;
  }
  shared_.ReleaseDecoder(s);
  answers_.Finish(s, s.cache, step.why);
  UpdateEstimates(s);
  Remove(s);
}

}  // namespace thermocline::sched
