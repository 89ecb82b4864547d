// Drafts ahead while the target verifies: a thread continues from the probable outcomes of the
// verification, in the order of their probability.
//
// The predicted event is (accepted length, next token): after a rejection the next token is not the
// draft's, so a draft that continues from the accepted length alone is worthless.
// Source: Duan et al. 2024 for drafting on a predicted branch; the event as in Saguaro (Kumar et
// al. 2026); continuing after an accepted draft as in PEARL (Liu et al. 2025).
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
  // `source` must be parallel(). A round drafts from at most `branches_max` outcomes.
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
  // Starts drafting from `branches`, in order. Job and branches are copied.
  void Start(const Job& job, const std::vector<Branch>& branches);

  struct Report {
    bool hit = false;    // a branch predicted the outcome
    double seconds = 0;  // spent drafting
    int tokens = 0;      // drafted, on all branches
    // The draft's proposal for the token after the verified ones; null if it was not reached. Valid
    // until the next Start.
    const Proposal* next = nullptr;
  };
  // The verification accepted k tokens, followed by `token`: stops the thread within one token and
  // moves the matching branch's draft, if any, to `draft` (cleared first). Drops all other
  // branches. Does not wait for the thread if the draft is complete: see WaitUntilIdle.
  Report Finish(int k, int token, Draft& draft);
  // Called during waits for the thread, as in Decoder::SetOnWait.
  void SetOnWait(const std::function<bool()>& should_continue) {
    should_continue_ = should_continue;
  }
  // Waits until the draft thread is idle. The source may then be used until the next Start.
  void WaitUntilIdle();
  // Stops the thread and drops all drafts.
  void Abandon();
  bool running() const { return running_; }

 private:
  struct Entry {
    Branch branch;
    Draft draft;
  };
  void Main();
  void DraftBranches();
  // Drafts one branch: its first token if not known yet, and `further` more; 0 leaves it
  // unpublished. Returns false when asked to stop.
  bool DraftBranch(const Branch& branch, int further);
  // Sets the token of branches_[at] to the draft's own token after the verified ones.
  bool FindNext(std::size_t at);
  // Drafts the branches from `first` on that one step of the source can take together. Returns
  // their number; 0 when asked to stop.
  std::size_t DraftBatch(std::size_t first);
  // Adds branches for the alternatives, once the draft's own next token is known.
  void AddAlternates(const Proposal& next, std::size_t from);
  // Moves the draft for this outcome to `draft`, if it has at least `at_least` tokens.
  bool TakeBranch(int k, int token, int at_least, Draft& draft);

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
  std::atomic<double> seconds_{0};  // from Start until the thread was idle; 0: it is running
  std::function<bool()> should_continue_;
  std::atomic<bool> next_known_{false};  // verified_[n_] is the draft's own token there

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
