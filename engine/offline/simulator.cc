#include "engine/offline/simulator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "engine/base/check.h"
#include "engine/base/index.h"

namespace thermocline::offline {
namespace {

constexpr std::int64_t kTokensToChoose = 20000;
// Branches of a common step, as in spec/model_source.cc and spec/async_drafter.cc.
constexpr int kTogether = 16, kTogetherLikely = 4;

// Source: SplitMix64 (Steele, Lea and Flood 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  double Uniform() {  // [0, 1)
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
  }

 private:
  std::uint64_t state_;
};

// An outcome that is drafted for, and its times in drafted tokens since the start of the round.
struct Branch {
  int k = 0, guess = 0;
  double probability = 0;
  double begin = 0, end = 0;
  // Start and duration of the steps that draft its n tokens. A step for the draft's own next token
  // may come before them.
  double steps_from = 0, step = 1;
};

// Groups up to `together` branches; each group takes n common steps.
void SetTimes(const PairModel& pair, int n, int together, std::vector<Branch>& plan) {
  double time = 0;
  bool next_known = false;  // the draft's own token after the n tokens
  for (int first = 0; first < base::IntSize(plan); first += together) {
    const auto group = std::span(plan).subspan(first).first(
        std::min(plan.size() - first, static_cast<std::size_t>(together)));
    const double step = 1 + pair.path_share * (base::IntSize(group) - 1);
    const bool finds_next =
        !next_known && std::any_of(group.begin(), group.end(), [n](auto& b) { return b.k == n; });
    next_known |= finds_next;
    const double begin = time + (finds_next ? 1 : 0), end = begin + n * step;
    for (Branch& branch : group) {
      branch.begin = time;
      branch.steps_from = begin;
      branch.step = step;
      branch.end = end;
    }
    time = end;
  }
}

std::vector<Branch> PlanBranches(const PairModel& pair, SpecMode mode, int n, int width) {
  std::vector<Branch> plan;
  if (mode != SpecMode::kBranch && mode != SpecMode::kExhaustive) return plan;
  for (int k = n; k >= 0; --k) {
    for (int guess = 0; guess < width; ++guess) {
      const double probability = pair.phi(k, n) * pair.GuessHit(guess, k, n);
      if (probability > 0 || mode == SpecMode::kExhaustive)
        plan.push_back({.k = k, .guess = guess, .probability = probability});
    }
  }
  std::stable_sort(plan.begin(), plan.end(),
                   [](const Branch& a, const Branch& b) { return a.probability > b.probability; });
  const bool common = pair.path_share < 1;
  SetTimes(pair, n,
           !common                         ? 1
           : mode == SpecMode::kExhaustive ? kTogether
                                           : kTogetherLikely,
           plan);
  return plan;
}

class Simulation {
 public:
  Simulation(const PairModel& pair, SpecMode mode, int n, int width, std::uint64_t seed)
      : pair_(pair),
        exhaustive_(mode == SpecMode::kExhaustive),
        n_(n),
        width_(width),
        plan_(PlanBranches(pair, mode, n, width)),
        random_(seed) {
    for (int k = 0; k <= n; ++k) phi_[k] = pair.phi(k, n);
    Wait(n);
    drafted_ = n;
  }

  SimulatedRun Run(std::int64_t tokens) {
    while (generated_ < tokens) Round();
    const double rounds = static_cast<double>(rounds_), drafted = static_cast<double>(drafted_);
    return {.tokens_per_s = static_cast<double>(generated_) / time_s_,
            .accepted_mean = static_cast<double>(generated_ - rounds_) / rounds,
            .branch_hit_rate = static_cast<double>(hits_) / rounds,
            .wait_share = wait_s_ / time_s_,
            .wasted_share = 1 - static_cast<double>(generated_ - rounds_ + guessed_) / drafted};
  }

 private:
  void Round() {
    const double done = Verify();
    const int k = Accepted(), guess = Guess(k);
    const auto branch = std::find_if(plan_.begin(), plan_.end(), [&](const Branch& b) {
      return b.k == k && b.guess == guess && b.begin < done;
    });
    // First the draft's current step ends; then the rest of the branch, or a new draft.
    const double at_end = StepEnd(done);
    const double drafted = branch == plan_.end() ? at_end + n_ : std::max(at_end, branch->end);
    Wait(drafted - done);
    drafted_ += branch == plan_.end() ? Tokens(at_end) + n_ : Tokens(drafted);
    hits_ += branch != plan_.end();
    guessed_ += branch != plan_.end() && k == n_ && guess == 0;
    generated_ += k + 1;
    time_s_ += pair_.round_overhead_s;
    ++rounds_;
  }

  // The end of the draft's current step.
  double StepEnd(double time) const {
    for (const Branch& b : plan_) {
      if (time >= b.end) continue;
      if (time <= b.steps_from) return b.begin + std::ceil(time - b.begin);
      return b.steps_from + std::ceil((time - b.steps_from) / b.step) * b.step;
    }
    return time;
  }
  // Tokens drafted on all branches by that time, which is the end of a step.
  std::int64_t Tokens(double time) const {
    double tokens = 0, next = 0;
    for (const Branch& b : plan_) {
      if (b.begin >= time) break;
      if (b.steps_from > b.begin) next = 1;
      tokens +=
          std::round(std::clamp((time - b.steps_from) / b.step, 0.0, static_cast<double>(n_)));
    }
    return static_cast<std::int64_t>(tokens + next);
  }

  // Simulates the verification, and returns how many tokens of the plan are drafted by its end.
  double Verify() {
    const double verify_s = pair_.Verify(n_ + 1);
    const double work = plan_.empty() ? 0 : plan_.back().end;
    const double token_s = pair_.draft_token_s * pair_.draft_slowdown;  // beside the target
    const double verify_beside_s = verify_s * pair_.verify_slowdown;
    if (work * token_s <= verify_beside_s) {
      time_s_ += work * token_s + verify_s - work * token_s / pair_.verify_slowdown;
      return work;
    }
    time_s_ += verify_beside_s;
    const double done = verify_beside_s / token_s;
    if (!exhaustive_) return done;
    Wait(work - done);
    return work;
  }

  void Wait(double tokens) {
    time_s_ += tokens * pair_.draft_token_s;
    wait_s_ += tokens * pair_.draft_token_s;
  }

  int Accepted() {
    double u = random_.Uniform();
    for (int k = 0; k < n_; ++k) {
      u -= phi_[k];
      if (u < 0) return k;
    }
    return n_;
  }

  // The guess after k tokens that is right; -1: none.
  int Guess(int k) {
    double u = random_.Uniform();
    for (int guess = 0; guess < width_; ++guess) {
      u -= pair_.GuessHit(guess, k, n_);
      if (u < 0) return guess;
    }
    return -1;
  }

  const PairModel& pair_;
  const bool exhaustive_;
  const int n_, width_;
  const std::vector<Branch> plan_;
  Random random_;
  std::array<double, kDraftTokensMax + 1> phi_ = {};
  double time_s_ = 0, wait_s_ = 0;
  std::int64_t generated_ = 0, rounds_ = 0, hits_ = 0;
  std::int64_t drafted_ = 0, guessed_ = 0;  // tokens; right guesses after n accepted tokens
};

}  // namespace

double PairModel::Verify(int tokens) const {
  const auto size = base::IntSize(verify_s);
  CHECK(tokens > 0 && size > 0);
  if (tokens <= size) return verify_s[tokens - 1];
  const double last = verify_s.back();
  const double step = size > 1 ? last - verify_s[verify_s.size() - 2] : 0;
  return last + std::max(0.0, step) * (tokens - size);
}

double PairModel::VerifyShare() const {
  const int size = base::IntSize(verify_s);
  if (size < 2) return 1;
  return std::clamp((verify_s.back() / verify_s[0] - 1) / (size - 1), 0.0, 1.0);
}

double PairModel::GuessHit(int guess, int k, int n) const {
  if (k == n && guess == 0) return bonus_hit;
  const std::size_t other = k == n ? guess - 1 : guess;
  if (other >= correction_hits.size()) return 0;
  return (k == n ? 1 - bonus_hit : 1) * correction_hits[other];
}

SimulatedRun Simulate(const PairModel& pair, SpecMode mode, int n, int width, std::int64_t tokens,
                      std::uint64_t seed) {
  CHECK(mode != SpecMode::kAuto && n >= 0 && n <= kDraftTokensMax && width >= 1);
  if (mode == SpecMode::kOff || n == 0) return {.tokens_per_s = 1 / pair.Verify(1)};
  return Simulation(pair, mode, n, width, seed).Run(tokens);
}

int BestDraftLength(const PairModel& pair, SpecMode mode, int width, int n_max) {
  int best = 0;
  double most = 0;
  for (int n = 0; n <= n_max; ++n) {
    const double speed = Simulate(pair, mode, n, width, kTokensToChoose).tokens_per_s;
    if (speed > most) most = speed, best = n;
  }
  return best;
}

}  // namespace thermocline::offline
