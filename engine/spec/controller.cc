#include "engine/spec/controller.h"

#include <algorithm>
#include <cmath>

namespace thermocline::spec {
namespace {

constexpr double kLostShareMax = 0.01;  // of the time
constexpr double kLostTokensMax = 2;    // beside that: plain tokens' time
constexpr double kBankedTokensMax = 8;  // gains that offset later losses
constexpr double kGainMin = 1.02;       // minimum gain of a drafting arm over plain decoding
constexpr int kTrialEvery = 128;        // rounds until an arm other than the best is tried again
constexpr int kArmMemory = 96;          // rounds
constexpr int kBranchesMax = 16;

}  // namespace

Controller::Controller(const Params& params) : params_(params) {
  const int all = params.threads, draft = params.draft_threads;
  arms_.push_back({SpecMode::kOff, all, 0});
  arms_.push_back({SpecMode::kSync, all, 0});
  if (!params.parallel) return;
  // Target and draft may both use all cores if the target waits for flash or a GPU; otherwise the
  // cores are divided.
  arms_.push_back({SpecMode::kBranch, all, draft});
  if (params.free) return;  // so cheap that it needs no core of its own
  if (draft > 1) arms_.push_back({SpecMode::kBranch, all, 1});
  if (all > 1) arms_.push_back({SpecMode::kBranch, all - 1, 1});
}

void Controller::Begin(const Request& request) {
  request_ = request;
  request_.tokens_max = std::clamp(request.tokens_max, 0, kDraftTokensMax);
  mode_ = request.mode;
  behind_ = request.prompt;
  paused_rounds_ = streak_ = 0;
  tables().phi = PhiEstimator(tables().pair.phi());
  if ((mode_ == SpecMode::kBranch || mode_ == SpecMode::kExhaustive) && !params_.parallel)
    mode_ = SpecMode::kSync;  // no source can work beside the target
}

double Controller::StepTime(int tokens) const {
  const bool beside = plan_.mode == SpecMode::kBranch || plan_.mode == SpecMode::kExhaustive;
  return verify_(tokens) * (beside ? std::max(1.0, verify_slowdown_.value()) : 1);
}

double Controller::PlainRate() const {
  if (arms_[0].known()) return arms_[0].rate();
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

double Controller::Risk() const {
  constexpr double kBatched = 0.3;  // of a token's time: batched tokens are cheaper
  return draft_s_.value() * (1 + kBatched * behind_) + std::max(0.0, verify_(2) - verify_(1));
}

bool Controller::Allowed(const Arm& arm) const {
  return mode_ == SpecMode::kAuto || arm.mode == mode_;
}

// Returns the best arm. Untried arms come first.
Controller::Arm* Controller::BestArm() {
  Arm* best = nullptr;
  for (Arm& arm : arms_) {
    if (!Allowed(arm)) continue;
    if (!arm.known()) return &arm;
    if (best == nullptr || arm.rate() > best->rate()) best = &arm;
  }
  Arm* const other = Trial(*best);
  return other != nullptr ? other : best;
}

Controller::Arm* Controller::Trial(const Arm& best) {
  if (++since_trial_ < kTrialEvery) return nullptr;
  Arm* const other = Candidate(best);
  if (other == nullptr ||
      (mode_ == SpecMode::kAuto && other->mode != SpecMode::kOff && !InBudget(Risk())))
    return nullptr;
  since_trial_ = 0;
  return other;
}

Controller::Arm* Controller::Candidate(const Arm& best) {
  for (std::size_t i = 0; i < arms_.size(); ++i) {
    Arm& arm = arms_[turn_++ % arms_.size()];
    // An arm that is far behind is more likely to waste time than to win.
    if (Allowed(arm) && &arm != &best &&
        (arm.mode == SpecMode::kOff || arm.rate() > 0.7 * best.rate()))
      return &arm;
  }
  return nullptr;
}

Controller::Arm* Controller::AutoArm(int room) {
  Arm* const off = &arms_[0];
  if (!off->known()) return off;  // the baseline
  const bool promising = PromisedRate(room) > kGainMin * PlainRate();
  Arm* best = off;
  for (Arm& arm : arms_) {
    if (arm.mode == SpecMode::kOff) continue;
    if (!arm.known()) {
      if (promising && InBudget(Risk())) return &arm;
      continue;
    }
    if (arm.rate() > best->rate() * (best == off ? kGainMin : 1)) best = &arm;
  }
  if (Arm* const other = Trial(*best); other != nullptr) return other;
  return best == off || InBudget(0) ? best : off;
}

Controller::Plan Controller::Next(int room) {
  plan_ = {SpecMode::kOff, 0, params_.threads, 0};
  arm_ = nullptr;
  const int tokens = std::max(0, std::min(request_.tokens_max, room));
  if (mode_ == SpecMode::kOff || (tokens < 1 && !request_.extra)) return plan_;
  if (mode_ == SpecMode::kExhaustive)
    return plan_ = {mode_, tokens, params_.threads, params_.draft_threads};
  if (mode_ == SpecMode::kSync && paused_rounds_ > 0 && !request_.extra) {
    --paused_rounds_;
    return plan_;
  }
  if (mode_ == SpecMode::kAuto && params_.free) {
    arm_ = &arms_[1];
  } else {
    arm_ = mode_ == SpecMode::kAuto ? AutoArm(tokens) : BestArm();
  }
  if (arm_->mode == SpecMode::kOff) return plan_;
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
  // The draft may be empty where the draft model's context ends.
  const int max =
      std::clamp(draft.size - (request_.extra ? 1 : 0), 0, std::max(0, plan_.tokens_max));
  if (params_.fixed || plan_.mode == SpecMode::kExhaustive || verify_(1) == 0) return max;
  if (mode_ == SpecMode::kAuto && params_.free && !InBudget(0)) return 0;
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

int Controller::ExpectedKept(const Draft& draft, int n) const {
  double all = 1, kept = 1;
  for (int i = 0; i < n; ++i) kept += all *= Accepted(draft, i);
  return std::min(n + 1, static_cast<int>(std::ceil(kept)));
}

void Controller::Branches(const Draft& draft, int n, std::vector<Branch>& out) const {
  const Tables& t = tables();
  out.clear();
  double all = 1;
  for (int k = 0; k < n; ++k) {
    const double accepted = Accepted(draft, k);
    const int guesses = std::min(params_.width, draft[k].num_alternates);
    for (int i = 0; i < guesses; ++i) {
      out.push_back({k, draft[k].alternates[i], all * (1 - accepted) * t.corrections(i + 1)});
    }
    all *= accepted;
  }
  if (draft.size > n) {  // it has a proposal for the next token, and alternatives
    out.push_back({n, draft[n].token, all * t.bonus(1)});
    const int guesses = std::min(params_.width - 1, draft[n].num_alternates);
    for (int i = 0; i < guesses; ++i) {
      out.push_back({n, draft[n].alternates[i], all * t.bonus(i + 2)});
    }
  } else {
    out.push_back({n, -1, all * t.bonus(1)});
  }
  std::sort(out.begin(), out.end(), [](const Branch& a, const Branch& b) {
    if (a.probability != b.probability) return a.probability > b.probability;
    return a.k != b.k ? a.k > b.k : a.token < b.token;
  });
  if (plan_.mode != SpecMode::kExhaustive && out.size() > kBranchesMax) out.resize(kBranchesMax);
}

void Controller::Add(const Draft& draft, const Round& round) {
  Tables& t = tables();
  for (int i = 0; i < round.judged; ++i)
    t.acceptances.Add(draft[i].confidence,
                      i < round.accepted || (i == round.verified && round.next_right));
  if (round.verified > 0) {
    t.pair.Add(round.accepted, round.verified);
    t.phi.Add(round.accepted, round.verified);
  }
  if (round.rank >= 0) (round.accepted < round.verified ? t.corrections : t.bonus).Add(round.rank);
  const bool beside = round.mode == SpecMode::kBranch || round.mode == SpecMode::kExhaustive;
  if (beside && verify_(round.verified + 1) > 0 && round.ahead_tokens > 0) {
    verify_slowdown_.Add(round.verify_s / verify_(round.verified + 1));
  } else if (!beside) {
    verify_.Add(round.verified + 1, round.verify_s);
  }
  if (round.draft_tokens > 0) draft_s_.Add(round.draft_s / round.draft_tokens);
  if (round.ahead_tokens > 0 && draft_s_.value() > 0)
    draft_slowdown_.Add(round.ahead_s / round.ahead_tokens / draft_s_.value());
  PauseDrafting(round);
  Account(draft, round);
}

// Drafts less and less often while no token of the drafts is worth verifying.
void Controller::PauseDrafting(const Round& round) {
  constexpr int kPauseMax = 5;  // 32 rounds
  if (params_.fixed || params_.free || round.drafted == 0) return;
  streak_ = round.verified > 0 ? 0 : std::min(streak_ + 1, kPauseMax);
  paused_rounds_ = streak_ == 0 ? 0 : 1 << streak_;
}

void Controller::Account(const Draft& draft, const Round& round) {
  constexpr double kRememberedS = 60;  // half-life of measurements
  const double keep_s = std::exp2(-round.total_s / kRememberedS);
  elapsed_s_ = elapsed_s_ * keep_s + round.total_s;
  lost_s_ *= keep_s;
  behind_ = round.drafted > 0 ? 0 : behind_ + round.accepted + 1;
  if (arm_ != nullptr) {
    // A round's expected tokens tell more about the arm than its actual ones.
    double all = 1, tokens = 1;
    for (int i = 0; i < std::min(round.verified, round.judged); ++i)
      tokens += all *= Accepted(draft, i);
    const double keep = 1 - 1.0 / kArmMemory;
    arm_->tokens = arm_->tokens * keep + tokens;
    arm_->seconds = arm_->seconds * keep + round.total_s - round.catch_up_s;
    ++arm_->rounds;
  }
  const double plain = PlainRate();
  const bool paid = round.verified > 0 || round.draft_tokens > 0;
  if (mode_ != SpecMode::kAuto || !paid || plain == 0) return;
  lost_s_ += round.total_s - (round.accepted + 1) / plain;
  lost_s_ = std::max(lost_s_, -kBankedTokensMax / plain);
}

}  // namespace thermocline::spec
