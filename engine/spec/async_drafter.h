// Drafts ahead while the target verifies: a thread that goes on from the outcomes that the
// verification will probably have, in the order of their probability.
//
// The event that is predicted is (accepted length, token behind it): after a refusal the next token
// is not the draft's, so a draft that goes on from the accepted length alone is worth nothing.
// Source: Duan et al. 2024 for working ahead on a predicted branch; the event as in Saguaro (Kumar
// et al. 2026), going on behind an accepted draft as in PEARL (Liu et al. 2025).
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/base/stopwatch.h"
#include "engine/spec/controller.h"
#include "engine/spec/draft_source.h"

namespace thermocline::spec {

// Decode thread only; owns the draft thread, which uses `source` between Start and Finish.
class AsyncDrafter {
 public:
  // `source` must be parallel(). At most `branches_max` outcomes are drafted on from in a round.
  AsyncDrafter(DraftSource& source, int branches_max);
  ~AsyncDrafter();
  AsyncDrafter(const AsyncDrafter&) = delete;
  AsyncDrafter& operator=(const AsyncDrafter&) = delete;

  struct Job {
    std::span<const int> sequence;  // before the draft
    const Draft& draft;             // under verification
    int n = 0;                      // tokens of it that are verified
    int depth = 0;                  // tokens drafted at each branch
    int width = 1;                  // guesses where the draft's own next token is not known yet
    std::function<double(int rank)> bonus_hit;  // Controller::BonusHit times P(all accepted)
    bool whole = false;                         // Finish waits for every branch
  };
  // Goes on from `branches`, the first first. Job and branches are copied.
  void Start(const Job& job, const std::vector<Branch>& branches);

  struct Report {
    bool hit = false;    // there was a branch for the outcome
    double seconds = 0;  // spent drafting
    int tokens = 0;      // drafted, on all branches
    // The draft's proposal for the token behind the verified ones; null: it did not get there.
    // Valid until the next Start.
    const Proposal* next = nullptr;
  };
  // The verification accepted k tokens, and `token` came behind: stops the thread within a token
  // and gives what it drafted behind that, if anything, to `draft` (cleared first). All other
  // branches are dropped. Does not wait for the thread if the draft is whole: see Settle.
  Report Finish(int k, int token, Draft& draft);
  // Asked while something waits for the thread, as Decoder::SetOnWait.
  void SetOnWait(const std::function<bool()>& goes_on) { goes_on_ = goes_on; }
  // Until the draft thread rests: the source may be used then, until the next Start.
  void Settle();
  // Stops and drops everything.
  void Abandon();
  bool running() const { return running_; }

 private:
  struct Entry {
    Branch branch;
    Draft draft;
  };
  void Main();
  void DraftBranches();
  // One branch: its first token if that is not known yet, and so many further ones; 0 leaves it
  // unpublished. Returns false when asked to stop.
  bool DraftBranch(const Branch& branch, int further);
  // Gives branches_[at] the draft's own token behind the verified ones.
  bool FindNext(std::size_t at);
  // The branches from `first` on that one step of the source takes together. Returns how many; 0
  // when asked to stop.
  std::size_t DraftTogether(std::size_t first);
  // The draft's own next token is known now: what else may come there can be drafted, too.
  void AddAlternates(const Proposal& next, std::size_t from);
  // Gives `draft` what was drafted for this outcome, if it has at least so many tokens.
  bool Take(int k, int token, int at_least, Draft& draft);

  DraftSource& source_;
  // Written by Start and read by the draft thread until it is idle.
  std::vector<int> sequence_, work_;
  Draft verified_;
  int n_ = 0, depth_ = 0, width_ = 1;
  std::array<double, kAlternatesMax + 1> bonus_ = {};
  std::vector<Branch> branches_;
  std::vector<DraftSource::Path> paths_;
  base::Stopwatch watch_;
  // The first `ready_` of this round are drafted, and not written again before the next Start.
  std::vector<Entry> entries_;
  std::atomic<std::size_t> ready_{0};
  std::atomic<int> tokens_{0};
  std::atomic<double> seconds_{0};  // from Start until it rested; 0: it works
  std::function<bool()> goes_on_;
  std::atomic<bool> next_known_{false};  // verified_[n_] is what the draft makes of the token there

  bool running_ = false;  // decode thread: started and not finished
  bool whole_ = false;
  std::atomic<bool> stop_{false};
  base::Mutex mutex_;
  base::Condition wake_, idle_;
  bool busy_ GUARDED_BY(mutex_) = false;
  bool quit_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace thermocline::spec
