// Decides what the next round does: whether to draft, how far, in which mode, on how many threads.
//
// All of it asks one question: is the time well spent? The target makes R tokens per second anyway,
// so what costs t seconds must be expected to bring R t tokens:
//   draft another token   if P(all up to it are accepted) >= R (t_draft + what its verification
//   adds) verify n of them      where 1 + sum of P(first j are accepted) - R T_verify(n + 1) is
//   largest draft at all          if some n promises more than R tokens per second; 0 is a length
//   like others
// Times are measured on line (estimates.h); T_verify(n + 1) contains the union of active neurons
// and what flash has to bring for it. In mode auto, what speculation has cost against plain
// decoding may never exceed 1% of the time plus two tokens: a draft that turned bad, or never was
// good, is paid from that and no more.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "engine/spec/estimates.h"

namespace thermocline::spec {

// A possible outcome of a verification, from which the draft may go on.
struct Branch {
  int k = 0;       // accepted tokens
  int token = -1;  // behind them; -1: what the draft itself takes for the likeliest
  double probability = 0;
};

// The outcome of a round, for the controller to learn from.
struct Round {
  SpecMode mode = SpecMode::kOff;
  int threads = 0;   // of the target
  int drafted = 0;   // proposals
  int verified = 0;  // n
  int accepted = 0;  // k <= n
  int judged = 0;    // proposals that were compared, of those verified and the one behind them
  bool next_right = false;  // the proposal behind the verified ones was judged, and right
  int rank = -1;  // of the token behind the accepted ones among the guesses for it: 1 the first; 0
                  // = none of them; -1 = there were none
  double verify_s = 0;    // the target's step
  double draft_s = 0;     // drafting that the target waited for
  int draft_tokens = 0;   // made in that time
  double catch_up_s = 0;  // beside that: the draft read what it had not seen
  double ahead_s = 0;     // drafting during the last verification
  int ahead_tokens = 0;
  bool guessed = false, hit = false;  // branches were drafted; one of them came true
  double wait_s = 0;                  // the target waited for the draft
  double total_s = 0;
};

// Decode thread only. Allocates nothing after construction.
class Controller {
 public:
  struct Params {
    bool fixed = false;     // draft as many as a request allows, always
    int width = 2;          // guesses at each end of a branch
    bool free = false;      // as DraftSource
    bool parallel = false;  // as DraftSource
    int threads = 1;        // the target's
    int draft_threads = 1;  // the draft's; 1: it has no more
  };
  explicit Controller(const Params& params);

  struct Request {
    SpecMode mode = SpecMode::kOff;
    int tokens_max = 0;  // of a draft
    bool greedy = true;  // surer than drawn drafts, so they are counted apart
    int prompt = 0;      // tokens
    bool extra = false;  // a token is always drafted behind those that are verified
  };
  void Begin(const Request& request);

  struct Plan {
    SpecMode mode = SpecMode::kOff;  // never auto
    int tokens_max = 0;              // drafted tokens that may be verified
    int threads = 0;                 // of the target while it verifies
    int draft_threads = 0;           // of the draft meanwhile
  };
  // `room`: tokens that may still come behind the next one.
  Plan Next(int room);
  const Plan& plan() const { return plan_; }
  // True if the next token of `draft` is worth drafting while the target waits for it.
  bool More(const Draft& draft) const;
  // Returns how many of its tokens to verify.
  int Verified(const Draft& draft) const;
  // Tokens that verifying `n` of them will probably keep, the one before them included: the mean,
  // rounded up.
  int ExpectedKept(const Draft& draft, int n) const;
  // The likeliest outcomes of verifying `n` tokens of `draft`, likeliest first.
  void Branches(const Draft& draft, int n, std::vector<Branch>& out) const;
  // The probability that the draft's guess of that rank comes behind a draft accepted whole.
  double BonusHit(int rank) const { return tables().bonus(rank); }
  void Add(const Draft& draft, const Round& round);

  // A target's step of so many tokens, and a drafted token, were timed outside of a round.
  void AddStep(int tokens, double seconds) { verify_.Add(tokens, seconds); }
  void AddDraftToken(double seconds) { draft_s_.Add(seconds); }

  const StepTimes& verify_s() const { return verify_; }
  double draft_token_s() const { return draft_s_.value(); }
  double draft_slowdown() const { return draft_slowdown_.value(); }
  double verify_slowdown() const { return verify_slowdown_.value(); }
  const Phi& phi() const { return tables().phi.phi(); }
  SpecMode mode() const { return mode_; }

 private:
  // The estimates for greedy or for drawn drafts.
  struct Tables {
    Acceptances acceptances;
    PhiEstimator pair{Phi{}, 4, 2048};  // of draft and target: the prior of requests
    PhiEstimator phi{Phi{}};            // of this request
    GuessHits corrections{0.4}, bonus{0.7};
  };
  // A way to run rounds, with what it brought.
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
  // Expected tokens per second of the best draft length, drafting in turn.
  double PromisedRate(int room) const;
  bool Allowed(const Arm& arm) const;
  // The yardstick or another way, when it is time to look again; null: it is not.
  Arm* Trial(const Arm& best);
  Arm* BestArm();
  // Returns the arm of the next round in mode auto, with a source that costs time.
  Arm* AutoArm(int room);
  // The next to be looked at again; null: none has chances.
  Arm* Candidate(const Arm& best);
  // Returns the time that a round with a draft may lose against plain decoding.
  double Risk() const;
  bool InBudget(double further_s) const;
  void Rest(const Round& round);
  void Account(const Draft& draft, const Round& round);

  const Params params_;
  Request request_;
  SpecMode mode_ = SpecMode::kOff;  // of the request, as far as the source can
  Plan plan_;
  StepTimes verify_;
  DecayedMean draft_s_;
  DecayedMean draft_slowdown_{1}, verify_slowdown_{1};
  std::array<Tables, 2> tables_;
  std::vector<Arm> arms_;
  Arm* arm_ = nullptr;                 // of this round
  double elapsed_s_ = 0, lost_s_ = 0;  // of the last minutes
  int resting_ = 0, streak_ = 0;       // rounds without drafts to come; drafts that did not pay
  int behind_ = 0;                     // tokens that came since the last draft
  int since_trial_ = 0;                // rounds
  std::size_t turn_ = 0;
};

}  // namespace thermocline::spec
