#include <algorithm>

#include "engine/base/index.h"
#include "engine/charts/chart.h"
#include "tools/plan/plan_draft_report.h"

namespace thermocline::tools {
namespace {

charts::Series Curve(const offline::PairModel& pair, SpecMode mode, int width) {
  charts::Series series{.label = SpecModeName(mode)};
  for (int n = 0; n <= kDraftTokensMax; ++n)
    series.points.emplace_back(n, Simulate(pair, mode, n, width, kPlannedTokens).tokens_per_s);
  return series;
}

// The draft length at which the draft takes as long as the target: n t = T(n + 1). nullopt if there
// is none.
std::optional<double> BalancedLength(const offline::PairModel& pair) {
  const auto lacks = [&](int n) { return pair.Verify(n + 1) - n * pair.draft_token_s; };
  for (int n = 1; n <= kDraftTokensMax; ++n) {
    if (lacks(n) > 0) continue;
    return n - 1 + lacks(n - 1) / (lacks(n - 1) - lacks(n));
  }
  return std::nullopt;
}

// Sets axes from zero, with a line where draft and target take equally long.
void Finish(const offline::PairModel& pair, charts::Chart& plot) {
  plot.x = {.label = "drafted tokens n", .whole = true, .min = 0, .max = kDraftTokensMax};
  plot.y = {.label = "tokens/s", .min = 0};
  double most = 0;
  for (const charts::Series& series : plot.series) {
    for (const auto& [n, speed] : series.points) most = std::max(most, speed);
  }
  if (const auto n = BalancedLength(pair))
    plot.series.push_back(
        {.label = "n t = T", .points = {{*n, 0}, {*n, most}}, .color = "#8c959f"});
}

charts::Chart PairPlot(const DraftPlan& plan) {
  charts::Chart plot{.title = "This pair"};
  const auto colors = charts::Colors(std::size(kPlannedModes));
  for (const SpecMode mode : kPlannedModes) {
    charts::Series series{.label = SpecModeName(mode), .color = colors[plot.series.size()]};
    for (int n = 0; n <= kDraftTokensMax; ++n)
      series.points.emplace_back(n, plan.at(mode, n).tokens_per_s);
    plot.series.push_back(std::move(series));
  }
  Finish(plan.pair, plot);
  return plot;
}

// Independent tokens with these acceptance rates. Source: Duan et al. 2024, figures 5 to 7.
charts::Chart AcceptancePlot(const DraftPlan& plan) {
  static constexpr double kRates[] = {0.5, 0.6, 0.7, 0.8, 0.9};
  charts::Chart plot{.title = "Other acceptance rates (dashed: sync)"};
  const auto colors = charts::Colors(std::size(kRates));
  for (std::size_t i = 0; i < std::size(kRates); ++i) {
    offline::PairModel pair = plan.pair;
    pair.phi = {.p = kRates[i], .a = 1, .c = 0};
    pair.bonus_hit = kRates[i];
    for (const SpecMode mode : {SpecMode::kBranch, SpecMode::kSync}) {
      charts::Series series = Curve(pair, mode, plan.width);
      series.label = mode == SpecMode::kBranch ? StrCat("branch, ", kRates[i]) : "";
      series.color = colors[i];
      series.dashed = mode == SpecMode::kSync;
      plot.series.push_back(std::move(series));
    }
  }
  Finish(plan.pair, plot);
  return plot;
}

charts::Chart HitPlot(const HitReport& hits) {
  charts::Chart plot{
      .title = "Outcomes among the first w branches",
      .x = {.label = "branches w", .whole = true, .min = 1, .max = offline::kBranchesMax},
      .y = {.label = "of the rounds", .percent = true, .min = 0, .max = 1}};
  static constexpr const char* kColors[] = {"#0969da", "#56b4e9", "#d55e00", "#000000", "#8c959f"};
  for (const offline::HitPolicy policy : offline::kHitPolicies) {
    charts::Series series{.label = HitPolicyName(policy),
                          .color = kColors[base::Index(policy)],
                          .dashed = policy >= offline::HitPolicy::kOracle};
    for (int w = 1; w <= offline::kBranchesMax; ++w)
      series.points.emplace_back(w, hits.Rate(policy, w));
    plot.series.push_back(std::move(series));
  }
  return plot;
}

}  // namespace

std::string DraftPlanSvg(const std::optional<DraftPlan>& plan,
                         const std::optional<HitReport>& hits) {
  std::vector<charts::Chart> plots;
  if (plan.has_value()) {
    plots.push_back(PairPlot(*plan));
    plots.push_back(AcceptancePlot(*plan));
  }
  if (hits.has_value()) plots.push_back(HitPlot(*hits));
  return charts::RenderPicture(plots, 2);
}

}  // namespace thermocline::tools
