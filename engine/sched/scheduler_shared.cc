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

#include "engine/base/index.h"
#include "engine/sched/scheduler.h"

namespace thermocline::sched {
namespace {

// Prompt tokens of one sequence before the next one is prefilled.
constexpr int kReadTurn = 256;
// Minimum time for masks before a step; half of the last step's time if that is more. The bound
// keeps the pace of sequences without masks, however many masks are expensive.
constexpr double kMaskSecondsMin = 0.0005;

int Tenants(const std::vector<Sequence*>& company) {
  std::set<std::string_view> tenants;
  for (const Sequence* s : company) tenants.insert(s->job.request.tenant);
  return base::IntSize(tenants);
}

// Sorts so that one sequence of each tenant comes first, then a second one of each. Within a
// tenant, the sequence that has waited longest comes first.
void SortByTurn(std::vector<Sequence*>& company) {
  std::sort(company.begin(), company.end(), [](const Sequence* a, const Sequence* b) {
    return std::tuple(a->last_turn, a->job.number) < std::tuple(b->last_turn, b->job.number);
  });
  std::map<std::string_view, int> met;
  std::vector<std::pair<int, Sequence*>> ranked;
  ranked.reserve(company.size());
  for (Sequence* s : company) ranked.emplace_back(met[s->job.request.tenant]++, s);
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t i = 0; i < ranked.size(); ++i) company[i] = ranked[i].second;
}

}  // namespace

// Returns true if the request's steps may be shared such that every token has the bits that it has
// alone.
bool Scheduler::Shares(const Request& request) const {
  return params_.step_tokens > 1 && !request.embed.has_value() && !request.prompt_logprobs &&
         !(params_.drafts_decide && request.sampling.temperature > 0);
}

bool Scheduler::Shares(const Sequence& s) const {
  // Tokens that were decoded in a lossy mode are recomputed alone, one by one.
  const nn::KvCache& cache = &s == current_ ? params_.loop.cache : s.cache;
  const bool again = !s.lossless && s.usage.completion_tokens > 0 && cache.length() < s.wanted();
  return !again && Shares(s.job.request);
}

bool Scheduler::MayCompute(const Sequence& s) const {
  return !s.paused_since.has_value() && !(s.dropped() && !Fits(&s, s.seniority(), s.tokens.size()));
}

// Begins new requests while there are places and memory.
void Scheduler::BeginNewcomers() {
  while (true) {
    std::vector<TurnOrder::Candidate> candidates;
    std::vector<std::uint64_t> numbers;
    std::deque<std::string>
        tenants;  // owns the names, because the queue may change after the visit
    params_.queue.ForEach([&](const Job& job) {
      const Request& request = job.request;
      if (!MayBegin(request) || !Fits(job) || IsReadNow(request)) return;
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
    if (!Enter(numbers[next])) return;
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
std::vector<Sequence*> Scheduler::Company(const std::vector<Sequence*>& runnable,
                                          const Sequence& leader) const {
  std::vector<Sequence*> company;
  if (!Shares(leader)) return company;
  for (Sequence* s : runnable)
    if (Shares(*s) && s->modes == leader.modes) company.push_back(s);
  return company;
}

// Returns true if the current sequence should end its turn to share steps.
bool Scheduler::HasCompany() {
  if (params_.step_tokens < 2) return false;
  BeginNewcomers();
  const auto runnable = Runnable();
  if (std::find(runnable.begin(), runnable.end(), current_) == runnable.end()) return false;
  const auto company = Company(runnable, *current_);
  return company.size() > 1 && budget_.Pays(Sharing(company));
}

// Returns the maximum answers of a step for `company`.
int Scheduler::Sharing(const std::vector<Sequence*>& company) const {
  return std::min(base::IntSize(company), params_.step_tokens);
}

bool Scheduler::StepTogether() {
  if (params_.step_tokens < 2) return false;
  BeginNewcomers();
  const auto runnable = Runnable();
  if (runnable.size() < 2) return false;
  std::vector<Sequence*> company = Company(runnable, *Leader(runnable));
  if (company.size() < 2) {  // it has a turn alone, and then another sequence leads
    Sequence& alone = *Leader(runnable);
    leader_ = 0;
    next_.reset();
    Turn(alone);
    return true;
  }
  if (!budget_.Pays(Sharing(company))) return false;
  if (company.size() == runnable.size()) together_ = 0;
  return StepOf(company);
}

// Returns the sequence whose company computes now. It leads for one turn if other sequences cannot
// take part.
Sequence* Scheduler::Leader(const std::vector<Sequence*>& runnable) {
  const auto led = [this](const Sequence* s) { return s->job.number == leader_; };
  auto leader = std::find_if(runnable.begin(), runnable.end(), led);
  if (leader == runnable.end() || together_ >= std::max(1, params_.quantum_tokens)) {
    std::vector<TurnOrder::Candidate> candidates;
    candidates.reserve(runnable.size());
    for (const Sequence* s : runnable) candidates.push_back(CandidateOf(*s));
    order_.Update(candidates);
    leader = runnable.begin() + static_cast<std::ptrdiff_t>(order_.Next(candidates));
    leader_ = (*leader)->job.number;
    together_ = 0;
  }
  return *leader;
}

// Runs one step of the company. Returns false if there was no memory for any sequence.
bool Scheduler::StepOf(std::vector<Sequence*>& company) {
  SortByTurn(company);
  MakeMasks(company);
  std::vector<SharedLoop::Share> shares = Compose(company);
  MakeRoomFor(shares);
  if (shares.empty()) return masks_wait_;
  int answers = 0, read = 0;
  for (const SharedLoop::Share& share : shares)
    (share.answers() ? answers : read) += share.tokens();
  next_.reset();
  last_step_s_ = shared_.Run(shares);
  budget_.Add(answers, read, last_step_s_);
  if (read == 0 && answers == base::IntSize(shares)) figures_.sharing_gain = budget_.Gain(answers);
  ++together_;
  ++turns_;
  bool lost = false;
  for (const SharedLoop::Share& share : shares) {
    lost = lost || share.sequence->error.kv_cache_lost;
    EndStep(share);
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
void Scheduler::MakeMasks(const std::vector<Sequence*>& company) {
  std::vector<Sequence*> answering;
  for (Sequence* s : company)
    if (s->answers()) answering.push_back(s);
  shared_.MakeMasks(answering, std::max(kMaskSecondsMin, last_step_s_ / 2));
  masks_wait_ = false;
  for (Sequence* s : answering) {
    if (SharedLoop::IsMasked(*s)) continue;
    masks_wait_ = true;
    (void)answers_.GoesOn(s->job);  // increments the heartbeat
    Charge(*s, 0, s->lane->sampler().TakeSeconds());
  }
}

// Charges the tenant for tokens and for the time of drawing them.
void Scheduler::Charge(const Sequence& s, double tokens, double sampling_s) {
  const double token_s = budget_.token_s();
  const double more = token_s > 0 ? sampling_s / token_s : 0;
  order_.Took(s.job.request.tenant, tokens + more, false);
}

// Composes the next step: answering sequences, then prefill, if the modes allow both in one step.
// Otherwise steps of either kind alternate.
std::vector<SharedLoop::Share> Scheduler::Compose(std::vector<Sequence*>& company) {
  const bool lossless = company.front()->lossless, mixes = lossless && params_.mixes;
  const int widest =
      mixes ? params_.step_tokens : std::min(params_.step_tokens, ffn::kSparseTokensMax);
  std::vector<Sequence*> readers;
  std::vector<SharedLoop::Share> shares;
  for (Sequence* s : company)
    if (!s->answers()) readers.push_back(s);
  const int room = mixes && !readers.empty() ? RoomForAnswers() : widest;
  const int most = std::min({budget_.Answers(Tenants(company), widest), room, params_.parts_max});
  for (Sequence* s : company)
    if (s->answers() && SharedLoop::IsMasked(*s) && base::IntSize(shares) < most)
      shares.push_back({s});
  const bool reads =
      !readers.empty() && (mixes || shares.empty() || !std::exchange(read_last_, true));
  if (!reads) {
    read_last_ = false;
    AddDrafts(widest, shares);
    return shares;
  }
  if (!mixes) shares.clear();
  AddReaders(readers, shares);
  return shares;
}

// Adds draft tokens where verifying one is worth its time, in steps without prefill. The step has
// no more tokens than a step of answers may have.
void Scheduler::AddDrafts(int widest, std::vector<SharedLoop::Share>& shares) {
  if (!params_.drafts) return;
  int left = std::min(widest, params_.loop.logits_max) - base::IntSize(shares);
  const double needed = budget_.DraftNeeds(base::IntSize(shares));
  for (SharedLoop::Share& share : shares) {
    if (left < 1) return;
    shared_.Draft(share, std::min(left, kSparseDraftTokensMax), needed);
    left -= share.draft;
  }
}

// Returns the maximum answers of a step that leaves room for some prefill.
int Scheduler::RoomForAnswers() const {
  constexpr int kRead = 8;
  const int tokens = params_.read_tokens_max;
  return std::max(1, std::min(params_.loop.logits_max - 1, tokens - std::min(kRead, tokens / 2)));
}

// Moves the sequence to the front whose tenant has had least. Within a tenant, in every second step
// the sequence that has waited longest comes first, and in the others the one with the shortest
// rest of its prompt, since prefill is all that it waits for.
void Scheduler::FirstToRead(std::vector<Sequence*>& readers) const {
  std::vector<TurnOrder::Candidate> candidates;
  candidates.reserve(readers.size());
  for (const Sequence* s : readers)
    candidates.push_back(
        {.priority = s->job.request.priority,
         .tenant = s->job.request.tenant,
         .begun = true,
         .since = turns_ % 2 == 0 ? s->last_turn
                                  : static_cast<std::uint64_t>(s->wanted() - s->cache.length())});
  const auto first = static_cast<std::ptrdiff_t>(order_.Next(candidates));
  std::rotate(readers.begin(), readers.begin() + first, readers.begin() + first + 1);
}

void Scheduler::AddReaders(std::vector<Sequence*>& readers,
                           std::vector<SharedLoop::Share>& shares) {
  const int answers = base::IntSize(shares);
  const int most = params_.read_tokens_max - answers;
  if (readers.size() > 1) FirstToRead(readers);
  int waiting = 0;
  for (const Sequence* s : readers) waiting += s->wanted() - s->cache.length();
  int left = budget_.ReadTokens(answers, waiting, most);
  int rows = params_.loop.logits_max - answers;
  for (Sequence* s : readers) {
    if (left < 1 || rows < 1 || base::IntSize(shares) >= params_.parts_max) return;
    if (s->cache.length() == 0) answers_.Find(*s, s->cache);
    if (s->answers()) continue;  // the prefix cache had all of it: it answers from the next step on
    const AnswerSteps::Chunk chunk = answers_.Next(*s, s->cache, left);
    if (chunk.last && !shared_.MakeMask(*s)) {  // its first token could not be drawn
      masks_wait_ = true;
      continue;
    }
    left -= base::IntSize(chunk.tokens);
    rows -= chunk.rows();
    shares.push_back({s, chunk});
  }
}

// Reserves memory, the most senior sequence first. A sequence without room releases its KV cache
// and does not take part.
void Scheduler::MakeRoomFor(std::vector<SharedLoop::Share>& shares) {
  std::sort(shares.begin(), shares.end(), [](const auto& a, const auto& b) {
    return a.sequence->seniority() < b.sequence->seniority();
  });
  nn::KvCount wanted;
  for (SharedLoop::Share& share : shares) {
    Sequence& s = *share.sequence;
    if (s.cache.length() != (share.answers() ? s.wanted() : share.read.at)) {
      share.why = Stop::kNoMemory;  // a more senior sequence took its memory
      continue;
    }
    const nn::KvCount more = s.cache.BlocksWanted(share.tokens());
    current_ = &s;
    const bool room = MakeRoom(
        {wanted.whole + more.whole, wanted.window + more.window, wanted.states + more.states});
    current_ = nullptr;
    if (room) {
      wanted.whole += more.whole;
      wanted.window += more.window;
      wanted.states += more.states;
    } else {
      s.cache.Clear();
      share.why = Stop::kNoMemory;
      ++s.usage.preemptions;
      ++figures_.preemptions;
    }
  }
  std::erase_if(shares, [](const auto& share) { return share.why != Stop::kNone; });
}

void Scheduler::EndStep(const SharedLoop::Share& share) {
  Sequence& s = *share.sequence;
  const bool read = !share.answers();
  Charge(s, share.tokens() * (read ? kPromptTokenShare : 1), share.sampling_s);
  if (read) s.read_since += share.tokens();
  if (!read || s.read_since >= kReadTurn) {
    s.last_turn = turns_;
    s.read_since = 0;
  }
  if (share.why == Stop::kNone) {
    if (!s.job.channel->full()) return;
    s.paused_since = SteadyClock::now();
    shared_.Leave(s);
    return;
  }
  shared_.Leave(s);
  answers_.Finish(s, s.cache, share.why);
  Learn(s);
  Remove(s);
}

}  // namespace thermocline::sched
