#include "engine/spec/async_drafter.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/base/index.h"
#include "engine/base/thread_priority.h"

namespace thermocline::spec {

AsyncDrafter::AsyncDrafter(DraftSource& source, int branches_max)
    : source_(source), thread_([this] { Main(); }) {
  pthread_setname_np(thread_.native_handle(), "draft");
  const auto capacity = static_cast<std::size_t>(source.capacity()) + 2 * kProposalsMax;
  sequence_.reserve(capacity);
  work_.reserve(capacity);
  branches_.reserve(kProposalsMax * (kAlternatesMax + 2));
  paths_.reserve(std::max(0, source.paths_max()));
  entries_.resize(branches_max);
}

AsyncDrafter::~AsyncDrafter() {
  Abandon();
  {
    const base::MutexLock lock(mutex_);
    quit_ = true;
  }
  wake_.NotifyOne();
  thread_.join();
}

void AsyncDrafter::Start(const Job& job, const std::vector<Branch>& branches) {
  CHECK(!running_);
  WaitUntilIdle();
  sequence_.assign(job.sequence.begin(), job.sequence.end());
  verified_.size = job.draft.size;
  for (int i = 0; i < job.draft.size; ++i) verified_[i].token = job.draft[i].token;
  n_ = job.n;
  depth_ = std::min(job.depth, kDraftTokensMax);
  width_ = job.width;
  for (int rank = 1; rank <= kAlternatesMax + 1; ++rank)
    bonus_[rank - 1] = job.bonus_hit ? job.bonus_hit(rank) : 0;
  branches_.assign(branches.begin(), branches.end());
  ready_ = 0;
  watch_.Restart();
  tokens_ = 0;
  seconds_ = 0;
  next_known_ = false;
  whole_ = job.whole;
  stop_ = false;
  running_ = true;
  {
    const base::MutexLock lock(mutex_);
    busy_ = true;
  }
  wake_.NotifyOne();
}

void AsyncDrafter::WaitUntilIdle() {
  constexpr std::chrono::milliseconds kSlice{20};
  base::MutexLock lock(mutex_);
  while (busy_) {
    if (idle_.WaitUntil(mutex_, std::chrono::steady_clock::now() + kSlice)) continue;
    lock.Unlock();
    if (should_continue_ && !should_continue_()) stop_ = true;
    lock.Lock();
  }
}

bool AsyncDrafter::TakeBranch(int k, int token, int at_least, Draft& draft) {
  const std::size_t ready = ready_.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < ready; ++i) {
    Entry& entry = entries_[i];
    if (entry.branch.k != k || entry.branch.token != token || entry.draft.size < at_least) continue;
    std::swap(draft, entry.draft);
    return true;
  }
  return false;
}

AsyncDrafter::Report AsyncDrafter::Finish(int k, int token, Draft& draft) {
  draft.Clear();
  if (!running_) return {};
  running_ = false;
  if (!whole_) stop_ = true;
  Report report;
  // A complete draft need not wait for the token being computed on another branch.
  report.hit = !whole_ && TakeBranch(k, token, depth_, draft);
  if (!report.hit) {
    WaitUntilIdle();
    report.hit = TakeBranch(k, token, 1, draft);
  }
  const double ended = seconds_.load(std::memory_order_acquire);
  report.seconds = ended > 0 ? ended : watch_.Seconds();
  report.tokens = tokens_.load(std::memory_order_relaxed);
  if (next_known_.load(std::memory_order_acquire)) report.next = &verified_[n_];
  return report;
}

void AsyncDrafter::Abandon() {
  running_ = false;
  stop_ = true;
  WaitUntilIdle();
}

void AsyncDrafter::Main() {
  // The target takes precedence if both need a processor: a delay of the target delays the whole
  // answer.
  constexpr int kNiceness = 10;
  base::LowerPriority(kNiceness);
  base::MutexLock lock(mutex_);
  while (true) {
    while (!busy_ && !quit_) wake_.Wait(mutex_);
    if (quit_) return;
    lock.Unlock();
    DraftBranches();
    seconds_.store(watch_.Seconds(), std::memory_order_release);
    lock.Lock();
    busy_ = false;
    idle_.NotifyOne();
  }
}

void AsyncDrafter::DraftBranches() {
  const bool together = source_.paths_max() > 1;
  // The list may grow during the loop.
  for (std::size_t i = 0; i < branches_.size() && !stop_;) {
    const bool unknown = branches_[i].token < 0;
    if (unknown && together) {
      if (!FindNext(i)) return;
    } else if (together) {
      const std::size_t drafted = DraftBatch(i);
      if (drafted == 0) return;
      i += drafted;
    } else {
      if (!DraftBranch(branches_[i], depth_)) return;
      if (unknown) AddAlternates(verified_[n_], i + 1);
      ++i;
    }
  }
}

bool AsyncDrafter::FindNext(std::size_t at) {
  if (!DraftBranch(branches_[at], 0)) return false;
  branches_[at].token = verified_[n_].token;
  AddAlternates(verified_[n_], at + 1);
  return true;
}

std::size_t AsyncDrafter::DraftBatch(std::size_t first) {
  constexpr std::size_t kAtOnce = 4;  // the most probable first: the target may finish
  const std::size_t slot = ready_.load(std::memory_order_relaxed);
  const std::size_t most = source_.paths_max();
  std::size_t count = std::min(whole_ ? most : std::min(most, kAtOnce), entries_.size() - slot);
  work_.assign(sequence_.begin(), sequence_.end());
  for (int i = 0; i < n_; ++i) work_.push_back(verified_[i].token);
  paths_.clear();
  for (std::size_t i = first; i < branches_.size() && paths_.size() < count; ++i) {
    if (branches_[i].token < 0) break;  // its token must be found first
    Entry& entry = entries_[slot + paths_.size()];
    entry.branch = branches_[i];
    entry.draft.Clear();
    paths_.push_back({.kept = base::IntSize(sequence_) + branches_[i].k,
                      .token = branches_[i].token,
                      .draft = &entry.draft});
  }
  count = paths_.size();
  const auto more = [&](int depth) {
    const bool go_on = depth < depth_ && !stop_;
    if (go_on) tokens_.fetch_add(static_cast<int>(count), std::memory_order_relaxed);
    return go_on;
  };
  // An error of the source will also reach the decode thread, which reports it.
  if (count == 0 || !source_.ProposeEach(work_, paths_, more).ok()) return 0;
  ready_.store(slot + count, std::memory_order_release);
  return stop_ ? 0 : count;
}

bool AsyncDrafter::DraftBranch(const Branch& branch, int further) {
  const bool unknown = branch.token < 0;  // then the draft's first token is the guess
  work_.assign(sequence_.begin(), sequence_.end());
  for (int i = 0; i < branch.k; ++i) work_.push_back(verified_[i].token);
  if (!unknown) work_.push_back(branch.token);
  const std::size_t slot = ready_.load(std::memory_order_relaxed);
  if (slot == entries_.size()) return false;
  Entry& entry = entries_[slot];
  entry.branch = branch;
  entry.draft.Clear();
  const int depth = further + (unknown ? 1 : 0);
  const auto more = [&](const Draft& draft) {
    const bool go_on = draft.size < depth && !stop_;
    if (go_on) tokens_.fetch_add(1, std::memory_order_relaxed);
    return go_on;
  };
  const Status status = source_.Propose(work_, more, entry.draft);
  // An error of the source will also reach the decode thread, which reports it.
  if (!status.ok() || (unknown && entry.draft.size == 0)) return false;
  if (unknown) {
    verified_[n_] = entry.draft[0];
    next_known_.store(true, std::memory_order_release);
    entry.branch.token = entry.draft[0].token;
    for (int i = 1; i < entry.draft.size; ++i) std::swap(entry.draft[i - 1], entry.draft[i]);
    --entry.draft.size;
  }
  if (further > 0) ready_.store(slot + 1, std::memory_order_release);
  return !stop_;
}

void AsyncDrafter::AddAlternates(const Proposal& next, std::size_t from) {
  const int guesses = std::min(width_ - 1, next.num_alternates);
  for (int i = 0; i < guesses; ++i) {
    const Branch branch{n_, next.alternates[i], bonus_[static_cast<std::size_t>(i) + 1]};
    const auto at =
        std::find_if(branches_.begin() + from, branches_.end(),
                     [&](const Branch& other) { return other.probability < branch.probability; });
    if (branches_.size() < branches_.capacity()) branches_.insert(at, branch);
  }
}

}  // namespace thermocline::spec
