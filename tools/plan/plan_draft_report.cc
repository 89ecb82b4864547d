#include "tools/plan/plan_draft_report.h"

#include <algorithm>
#include <cstdio>

#include "engine/base/index.h"

namespace thermocline::tools {
namespace {

using offline::SimulatedRun;

constexpr double kWorthIt = 1.01;
constexpr int kWidthsPrinted[] = {1, 2, 3, 4, 6, 8, 12, 16};

double BestSpeed(const DraftPlan& plan, SpecMode mode) {
  return plan.at(mode, plan.BestLength(mode)).tokens_per_s;
}

Json PairJson(const offline::PairModel& pair) {
  const auto list = [](const std::vector<double>& values) {
    return Json::Array(values.begin(), values.end());
  };
  return Json::Object{
      {"draft_token_s", pair.draft_token_s},
      {"verify_s", list(pair.verify_s)},
      {"phi", Json::Object{{"p", pair.phi.p}, {"a", pair.phi.a}, {"c", pair.phi.c}}},
      {"correction_hits", list(pair.correction_hits)},
      {"bonus_hit", pair.bonus_hit},
      {"draft_slowdown", pair.draft_slowdown},
      {"verify_slowdown", pair.verify_slowdown},
      {"round_overhead_s", pair.round_overhead_s},
      {"path_share", pair.path_share}};
}

Json RunsJson(const DraftPlan& plan, SpecMode mode) {
  Json::Array out;
  for (int n = 0; n <= kDraftTokensMax; ++n) {
    const SimulatedRun& run = plan.at(mode, n);
    out.push_back(Json::Object{{"n", n},
                               {"tokens_per_s", run.tokens_per_s},
                               {"accepted_mean", run.accepted_mean},
                               {"hit_rate", run.branch_hit_rate},
                               {"wait_share", run.wait_share},
                               {"wasted_share", run.wasted_share}});
  }
  return out;
}

void PrintPair(const offline::PairModel& pair) {
  std::printf("draft: %.3f ms a token; target: %.3f ms for one token, %.3f for 5, %.3f for 9\n",
              1e3 * pair.draft_token_s, 1e3 * pair.Verify(1), 1e3 * pair.Verify(5),
              1e3 * pair.Verify(9));
  std::printf("accepted: p %.3f, a %.3f, floor %.4f; guessed behind: %.0f%% of the next tokens",
              pair.phi.p, pair.phi.a, pair.phi.c, 100 * pair.bonus_hit);
  for (const double hit : pair.correction_hits) std::printf(", %.0f%%", 100 * hit);
  std::printf(" of corrections\nwhile both run: draft %.2f, target %.2f times slower\n\n",
              pair.draft_slowdown, pair.verify_slowdown);
}

void PrintRuns(const DraftPlan& plan) {
  std::printf(
      "      tokens/s                                  branch                exhaustive\n"
      " n       off      sync    branch  exhaustive     hits waited wasted    hits waited "
      "wasted\n");
  for (int n = 0; n <= kDraftTokensMax; ++n) {
    std::printf("%2d", n);
    for (const SpecMode mode : kPlannedModes) {
      const bool best = n == plan.BestLength(mode);
      std::printf("%*.2f%c", mode == SpecMode::kExhaustive ? 11 : 9, plan.at(mode, n).tokens_per_s,
                  best ? '*' : ' ');
    }
    for (const SpecMode mode : {SpecMode::kBranch, SpecMode::kExhaustive}) {
      const SimulatedRun& run = plan.at(mode, n);
      std::printf("  %5.0f%% %5.0f%% %5.0f%%", 100 * run.branch_hit_rate, 100 * run.wait_share,
                  100 * run.wasted_share);
    }
    std::printf("\n");
  }
}

void PrintChoice(const DraftPlan& plan) {
  const SpecMode mode = plan.BestMode();
  const double speed = BestSpeed(plan, mode), off = BestSpeed(plan, SpecMode::kOff);
  const double sync = BestSpeed(plan, SpecMode::kSync);
  if (mode == SpecMode::kOff) {
    std::printf("\ntake: off, %.2f tokens/s; no draft gains more than 1%%\n", speed);
    return;
  }
  std::printf("\ntake: %s with drafts of %d: %.2f tokens/s, %.2f times plain, %.2f times sync\n",
              SpecModeName(mode), plan.BestLength(mode), speed, speed / off, speed / sync);
}

void PrintHits(const HitReport& hits) {
  std::printf("outcomes among the first w branches, of %d recorded rounds\n\n w", hits.rounds);
  for (const offline::HitPolicy policy : offline::kHitPolicies)
    std::printf("  %9s", HitPolicyName(policy));
  std::printf("\n");
  for (const int w : kWidthsPrinted) {
    std::printf("%2d", w);
    for (const offline::HitPolicy policy : offline::kHitPolicies)
      std::printf("  %8.1f%%", 100 * hits.Rate(policy, w));
    std::printf("\n");
  }
  std::printf(
      "\nphi: ours without confidences; paper: lengths only; oracle: knows phi of the whole trace; "
      "\nhindsight: ours, knowing all shares from the start\n");
}

}  // namespace

int DraftPlan::BestLength(SpecMode mode) const {
  const auto& by_n = runs[base::Index(mode)];
  const auto best = std::max_element(by_n.begin(), by_n.end(), [](const auto& a, const auto& b) {
    return a.tokens_per_s < b.tokens_per_s;
  });
  return static_cast<int>(best - by_n.begin());
}

SpecMode DraftPlan::BestMode() const {
  SpecMode best = SpecMode::kOff;
  for (const SpecMode mode : kPlannedModes) {
    if (BestSpeed(*this, mode) > kWorthIt * BestSpeed(*this, best)) best = mode;
  }
  return best;
}

DraftPlan MakeDraftPlan(const offline::PairModel& pair, int width) {
  DraftPlan plan{.pair = pair, .width = width};
  for (const SpecMode mode : kPlannedModes) {
    for (int n = 0; n <= kDraftTokensMax; ++n)
      plan.runs[base::Index(mode)][n] = Simulate(pair, mode, n, width, kPlannedTokens);
  }
  return plan;
}

Json DraftPlanJson(const std::optional<DraftPlan>& plan, const std::optional<HitReport>& hits) {
  Json out{Json::Object()};
  if (plan.has_value()) {
    const SpecMode best = plan->BestMode();
    const double speed = BestSpeed(*plan, best);
    Json::Array modes;
    for (const SpecMode mode : kPlannedModes)
      modes.push_back(Json::Object{{"mode", SpecModeName(mode)},
                                   {"best_n", plan->BestLength(mode)},
                                   {"tokens_per_s", BestSpeed(*plan, mode)},
                                   {"by_n", RunsJson(*plan, mode)}});
    out.Set("pair", PairJson(plan->pair));
    out.Set("width", plan->width);
    out.Set("modes", std::move(modes));
    out.Set("best", Json::Object{{"mode", SpecModeName(best)},
                                 {"n", plan->BestLength(best)},
                                 {"tokens_per_s", speed},
                                 {"over_off", speed / BestSpeed(*plan, SpecMode::kOff)},
                                 {"over_sync", speed / BestSpeed(*plan, SpecMode::kSync)}});
  }
  if (hits.has_value()) {
    Json policies{Json::Object()};
    for (const offline::HitPolicy policy : offline::kHitPolicies) {
      Json::Array rates;
      for (int w = 1; w <= offline::kBranchesMax; ++w) rates.push_back(hits->Rate(policy, w));
      policies.Set(HitPolicyName(policy), std::move(rates));
    }
    out.Set("hit_rates", Json::Object{{"rounds", hits->rounds}, {"policies", std::move(policies)}});
  }
  return out;
}

void PrintDraftPlan(const std::optional<DraftPlan>& plan, const std::optional<HitReport>& hits) {
  if (plan.has_value()) {
    PrintPair(plan->pair);
    PrintRuns(*plan);
    PrintChoice(*plan);
  }
  if (plan.has_value() && hits.has_value()) std::printf("\n");
  if (hits.has_value()) PrintHits(*hits);
}

}  // namespace thermocline::tools
