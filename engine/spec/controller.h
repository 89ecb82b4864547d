// Decides the next round: draft or not, draft length, mode and threads.
//
// Every decision compares gain and time. R is the rate that drafting must reach, in tokens per
// second: that of plain decoding, or of the round's arm (mode and threads) if it is higher. A step
// of t seconds must be expected to yield R t tokens:
//   draft another token   if P(all up to it are accepted) >= R (t_draft + its verify time)
//   verify n of them      the n, 0 included, with the largest
//                         1 + sum over j <= n of P(first j are accepted) - R T_verify(n + 1)
//   draft at all          in mode auto: if the measured rate of an arm that drafts exceeds plain
//                         decoding's by 2%, or if the estimates promise that of an unmeasured arm
// Times are measured at load and while requests run (estimates.h); T_verify(n + 1) includes the
// union of active neurons and the flash reads for it. Mode auto stops drafting while its loss
// against plain decoding exceeds 1% of the time plus two tokens, which bounds the cost of bad
// drafts.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "engine/spec/estimates.h"

namespace thermocline::spec {

// A possible outcome of a verification, from which drafting may continue.
struct Branch {
  int k = 0;       // accepted tokens
  int token = -1;  // after them; -1: the draft's own most likely token
  double probability = 0;
};

// The outcome of a round, from which the controller learns.
struct Round {
  SpecMode mode = SpecMode::kOff;
  int threads = 0;          // of the target
  int drafted = 0;          // proposals
  int verified = 0;         // n
  int accepted = 0;         // k <= n
  int judged = 0;           // compared proposals, of those verified and the next one
  bool next_right = false;  // the proposal after the verified ones was judged, and right
  int rank = -1;  // rank among the guesses of the token after the accepted ones, 1 = first; 0 = not
                  // a guess; -1 = no guesses
  double verify_s = 0;    // the target's step
  double draft_s = 0;     // drafting time that the target waited for
  int draft_tokens = 0;   // drafted in that time
  double catch_up_s = 0;  // beside that: prefill of tokens new to the draft model
  double ahead_s = 0;     // drafting during the last verification
  int ahead_tokens = 0;
  bool guessed = false, hit = false;  // branches were drafted; one of them was right
  double wait_s = 0;                  // time that the target waited for the draft
  double total_s = 0;
};

// Decode thread only. Allocates nothing after construction.
class Controller {
 public:
  struct Params {
    bool fixed = false;     // always draft as many tokens as a request allows
    int width = 2;          // guesses at each end of a branch
    bool free = false;      // as DraftSource
    bool parallel = false;  // as DraftSource
    int threads = 1;        // the target's
    int draft_threads = 1;  // of the draft; 1: it has no more
  };
  explicit Controller(const Params& params);

  struct Request {
    SpecMode mode = SpecMode::kOff;
    int tokens_max = 0;  // of a draft
    bool greedy = true;  // more predictable than sampled drafts, so counted apart
    int prompt = 0;      // tokens
    bool extra = false;  // one token is always drafted after the verified ones
  };
  void Begin(const Request& request);

  struct Plan {
    SpecMode mode = SpecMode::kOff;  // never auto
    int tokens_max = 0;              // drafted tokens that may be verified
    int threads = 0;                 // of the target while it verifies
    int draft_threads = 0;           // of the draft meanwhile
  };
  // `room`: tokens that may follow the next one.
  Plan Next(int room);
  const Plan& plan() const { return plan_; }
  // Returns true if the next token of `draft` is worth drafting while the target waits for it.
  bool More(const Draft& draft) const;
  // Returns the number of draft tokens to verify.
  int Verified(const Draft& draft) const;
  // Returns the tokens that verifying `n` draft tokens will probably keep, including the one before
  // them: the mean, rounded up.
  int ExpectedKept(const Draft& draft, int n) const;
  // The most likely outcomes of verifying `n` tokens of `draft`, in order of probability.
  void Branches(const Draft& draft, int n, std::vector<Branch>& out) const;
  // The probability that the draft's guess of that rank follows a fully accepted draft.
  double BonusHit(int rank) const { return tables().bonus(rank); }
  void Add(const Draft& draft, const Round& round);

  // Adds the times of a target step of `tokens` tokens, and of a drafted token, measured outside of
  // a round.
  void AddStep(int tokens, double seconds) { verify_.Add(tokens, seconds); }
  void SetSteps(const StepTimes& times) { verify_ = times; }
  void AddDraftToken(double seconds) { draft_s_.Add(seconds); }

  const StepTimes& verify_s() const { return verify_; }
  double draft_token_s() const { return draft_s_.value(); }
  double draft_slowdown() const { return draft_slowdown_.value(); }
  double verify_slowdown() const { return verify_slowdown_.value(); }
  const Phi& phi() const { return tables().phi.phi(); }
  SpecMode mode() const { return mode_; }

 private:
  // The estimates for greedy or for sampled drafts.
  struct Tables {
    Acceptances acceptances;
    PhiEstimator pair{Phi{}, 4, 2048};  // of draft and target: the prior of requests
    PhiEstimator phi{Phi{}};            // of this request
    GuessHits corrections{0.4}, bonus{0.7};
  };
  // A configuration of rounds, with its measured yield.
  struct Arm {
    SpecMode mode;
    int threads, draft_threads;
    double tokens = 0, seconds = 0;  // decayed
    int rounds = 0;

    double rate() const { return seconds > 0 ? tokens / seconds : 0; }
    bool known() const { return rounds >= kTrialRounds; }
  };
  static constexpr int kTrialRounds = 3;
  Tables& tables() { return tables_[request_.greedy ? 1 : 0]; }
  const Tables& tables() const { return tables_[request_.greedy ? 1 : 0]; }
  double Accepted(const Draft& draft, int place) const;
  double PlainRate() const;
  double Rate() const;  // R
  double StepTime(int tokens) const;
  // Expected tokens per second of the best draft length, when draft and target alternate.
  double PromisedRate(int room) const;
  bool Allowed(const Arm& arm) const;
  // Returns the baseline or another arm if it is due for a trial; null otherwise.
  Arm* Trial(const Arm& best);
  Arm* BestArm();
  // Returns the arm of the next round in mode auto, with a source that costs time.
  Arm* AutoArm(int room);
  // Returns the next arm to try again; null if none is promising.
  Arm* Candidate(const Arm& best);
  // Returns the time that a round with a draft may lose against plain decoding.
  double Risk() const;
  bool InBudget(double further_s) const;
  void PauseDrafting(const Round& round);
  void Account(const Draft& draft, const Round& round);

  const Params params_;
  Request request_;
  SpecMode mode_ = SpecMode::kOff;  // of the request, if the source supports it
  Plan plan_;
  StepTimes verify_;
  DecayedMean draft_s_;
  DecayedMean draft_slowdown_{1}, verify_slowdown_{1};
  std::array<Tables, 2> tables_;
  std::vector<Arm> arms_;
  Arm* arm_ = nullptr;                  // of this round
  double elapsed_s_ = 0, lost_s_ = 0;   // of the last minutes
  int paused_rounds_ = 0, streak_ = 0;  // rounds to skip drafting; unprofitable drafts in a row
  int behind_ = 0;                      // tokens since the last draft
  int since_trial_ = 0;                 // rounds
  std::size_t turn_ = 0;
};

}  // namespace thermocline::spec
