#include "engine/spec/controller.h"

#include <algorithm>

namespace thermocline::spec {
namespace {

constexpr double kLostShareMax = 0.01;  // of the time
constexpr double kLostTokensMax = 2;    // beside that: plain tokens' time
constexpr double kBankedTokensMax = 8;  // gains that count against later losses
constexpr int kPlainEvery = 128;        // rounds: plain steps are timed so often
constexpr int kProbeEvery = 32;         // rounds: drafts that do not pay are looked at again
constexpr int kTrialEvery = 384, kTrialRounds = 6;  // rounds: other arms than the best are tried
constexpr int kArmMemory = 96;                      // rounds
constexpr int kBranchesMax = 16;

}  // namespace

Controller::Controller(const Params& params) : params_(params) {
  const int all = params.threads, draft = params.draft_threads;
  arms_.push_back({SpecMode::kSync, all, 0});
  if (!params.parallel) return;
  // Where the target waits for flash or a GPU both may have all cores; else they are shared out.
  arms_.push_back({SpecMode::kBranch, all, draft});
  if (draft > 1) arms_.push_back({SpecMode::kBranch, all, 1});
  if (all > 1) arms_.push_back({SpecMode::kBranch, all - 1, 1});
}

void Controller::Begin(const Request& request) {
  request_ = request;
  request_.tokens_max = std::clamp(request.tokens_max, 0, kDraftTokensMax);
  mode_ = request.mode;
  tables().phi = PhiEstimator(tables().pair.phi());
  if ((mode_ == SpecMode::kBranch || mode_ == SpecMode::kExhaustive) && !params_.parallel)
    mode_ = SpecMode::kSync;  // nothing that could work beside the target
}

double Controller::StepTime(int tokens) const {
  const bool beside = plan_.mode == SpecMode::kBranch || plan_.mode == SpecMode::kExhaustive;
  return verify_(tokens) * (beside ? std::max(1.0, verify_slowdown_.value()) : 1);
}

double Controller::PlainRate() const {
  const double plain = verify_(1);
  return plain > 0 ? 1 / plain : 0;
}

double Controller::Rate() const {
  return std::max(PlainRate(), arm_ != nullptr ? arm_->rate() : 0);
}

double Controller::PromisedRate(int room) const {
  const Phi& phi = tables().phi.phi();
  const double draft = params_.free ? 0 : draft_s_.value();
  double best = 0, tokens = 1;
  for (int n = 1; n <= std::min(request_.tokens_max, room); ++n) {
    tokens += phi.AtLeast(n, kDraftTokensMax);
    const double seconds = verify_(n + 1) + n * draft;
    if (seconds > 0) best = std::max(best, tokens / seconds);
  }
  return best;
}

bool Controller::InBudget(double further_s) const {
  return lost_s_ + further_s <= kLostShareMax * elapsed_s_ + kLostTokensMax * verify_(1);
}

// The arm with the best rate; others now and then, for a few rounds.
Controller::Arm* Controller::ChooseArm() {
  Arm* best = nullptr;
  Arm* untried = nullptr;
  for (Arm& arm : arms_) {
    const bool allowed = mode_ == SpecMode::kAuto || arm.mode == mode_;
    if (!allowed) continue;
    if (arm.rounds < kTrialRounds && untried == nullptr) untried = &arm;
    if (best == nullptr || arm.rate() > best->rate()) best = &arm;
  }
  if (untried != nullptr) return untried;
  if (++since_trial_ >= kTrialEvery) {
    since_trial_ = 0;
    Arm* longest = best;  // the one that was looked at least
    for (Arm& arm : arms_) {
      const bool allowed = mode_ == SpecMode::kAuto || arm.mode == mode_;
      // What is far behind has better chances to waste time than to win.
      if (allowed && &arm != best && arm.rate() > 0.8 * best->rate() &&
          (longest == best || arm.rounds < longest->rounds))
        longest = &arm;
    }
    if (longest != best) longest->rounds = 0;
  }
  return best;
}

Controller::Plan Controller::Next(int room) {
  plan_ = {SpecMode::kOff, 0, params_.threads, 0};
  arm_ = nullptr;
  const int tokens = std::max(0, std::min(request_.tokens_max, room));
  if (mode_ == SpecMode::kOff || (tokens < 1 && !request_.extra)) return plan_;
  if (mode_ == SpecMode::kExhaustive)
    return plan_ = {mode_, tokens, params_.threads, params_.draft_threads};
  if (mode_ != SpecMode::kAuto) {
    arm_ = ChooseArm();
    return plan_ = {mode_, tokens, arm_->threads, arm_->draft_threads};
  }
  if (++since_plain_ >= kPlainEvery) {  // the yardstick
    since_plain_ = 0;
    return plan_;
  }
  if (!params_.free) {
    const bool promising = PromisedRate(room) > 1.01 * PlainRate();
    const double cost = draft_s_.value() + std::max(0.0, verify_(2) - verify_(1));
    const bool probe = ++since_probe_ >= kProbeEvery;
    if (!InBudget(promising ? 0 : cost) || (!promising && !probe)) return plan_;
    since_probe_ = 0;
  }
  arm_ = ChooseArm();
  return plan_ = {arm_->mode, tokens, arm_->threads, arm_->draft_threads};
}

double Controller::Accepted(const Draft& draft, int place) const {
  const Tables& t = tables();
  return t.acceptances(draft[place].confidence, place, t.phi.phi());
}

bool Controller::More(const Draft& draft) const {
  if (draft.size >= plan_.tokens_max + (request_.extra ? 1 : 0)) return false;
  if (params_.fixed || params_.free || plan_.mode == SpecMode::kExhaustive || draft.size == 0)
    return true;
  double all = 1;
  for (int i = 0; i < draft.size; ++i) all *= Accepted(draft, i);
  const Phi& phi = tables().phi.phi();
  const double before = phi.AtLeast(draft.size, kDraftTokensMax);
  if (before > 0) all *= phi.AtLeast(draft.size + 1, kDraftTokensMax) / before;
  const double adds = StepTime(draft.size + 2) - StepTime(draft.size + 1);
  return all >= Rate() * (draft_s_.value() + std::max(0.0, adds));
}

int Controller::Verified(const Draft& draft) const {
  // Nothing may have been drafted, where the context of the draft ends.
  const int max =
      std::clamp(draft.size - (request_.extra ? 1 : 0), 0, std::max(0, plan_.tokens_max));
  if (params_.fixed || plan_.mode == SpecMode::kExhaustive || verify_(1) == 0) return max;
  if (mode_ == SpecMode::kAuto && !InBudget(0)) return 0;
  const double rate = Rate();
  double all = 1, tokens = 1, best = 1 - rate * StepTime(1);
  int n = 0;
  for (int i = 1; i <= max; ++i) {
    all *= Accepted(draft, i - 1);
    tokens += all;
    const double value = tokens - rate * StepTime(i + 1);
    if (value <= best) continue;
    best = value;
    n = i;
  }
  return n;
}

void Controller::Branches(const Draft& draft, int n, std::vector<Branch>& out) const {
  const Tables& t = tables();
  out.clear();
  double all = 1;
  for (int k = 0; k < n; ++k) {
    const double accepted = Accepted(draft, k);
    const int guesses = std::min(params_.width, draft[k].num_alternates);
    for (int i = 0; i < guesses; ++i) {
      out.push_back({k, draft[k].alternates[static_cast<std::size_t>(i)],
                     all * (1 - accepted) * t.corrections(i + 1)});
    }
    all *= accepted;
  }
  if (draft.size > n) {  // the draft has said what comes behind, and what else may
    out.push_back({n, draft[n].token, all * t.bonus(1)});
    const int guesses = std::min(params_.width - 1, draft[n].num_alternates);
    for (int i = 0; i < guesses; ++i) {
      out.push_back({n, draft[n].alternates[static_cast<std::size_t>(i)], all * t.bonus(i + 2)});
    }
  } else {
    out.push_back({n, -1, all * t.bonus(1)});
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Branch& a, const Branch& b) { return a.probability > b.probability; });
  if (plan_.mode != SpecMode::kExhaustive && out.size() > kBranchesMax) out.resize(kBranchesMax);
}

void Controller::Add(const Draft& draft, const Round& round) {
  Tables& t = tables();
  for (int i = 0; i < round.judged; ++i) t.acceptances.Add(draft[i].confidence, i < round.accepted);
  if (round.verified > 0) {
    t.pair.Add(round.accepted, round.verified);
    t.phi.Add(round.accepted, round.verified);
  }
  if (round.ranked) (round.accepted < round.verified ? t.corrections : t.bonus).Add(round.rank);
  const bool beside = round.mode == SpecMode::kBranch || round.mode == SpecMode::kExhaustive;
  if (beside && verify_(round.verified + 1) > 0 && round.ahead_tokens > 0) {
    verify_slowdown_.Add(round.verify_s / verify_(round.verified + 1));
  } else if (!beside) {
    verify_.Add(round.verified + 1, round.verify_s);
  }
  if (round.draft_tokens > 0) draft_s_.Add(round.draft_s / round.draft_tokens);
  if (round.ahead_tokens > 0 && draft_s_.value() > 0)
    draft_slowdown_.Add(round.ahead_s / round.ahead_tokens / draft_s_.value());
  Account(draft, round);
}

void Controller::Account(const Draft& draft, const Round& round) {
  if (round.mode == SpecMode::kOff) since_plain_ = 0;
  elapsed_s_ += round.total_s;
  if (arm_ != nullptr) {
    // What the round could expect says more about the arm than what it got.
    double all = 1, tokens = 1;
    for (int i = 0; i < round.verified; ++i) tokens += all *= Accepted(draft, i);
    const double keep = 1 - 1.0 / kArmMemory;
    arm_->tokens = arm_->tokens * keep + tokens;
    arm_->seconds = arm_->seconds * keep + round.total_s;
    ++arm_->rounds;
  }
  if (mode_ != SpecMode::kAuto || round.mode == SpecMode::kOff || verify_(1) == 0) return;
  const double plain = verify_(1);
  lost_s_ += round.total_s - (round.accepted + 1) * plain;
  lost_s_ = std::max(lost_s_, -kBankedTokensMax * plain);
}

}  // namespace thermocline::spec
