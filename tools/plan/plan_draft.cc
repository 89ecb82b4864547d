#include "tools/plan/plan_draft.h"

#include <algorithm>
#include <optional>

#include "engine/base/file.h"
#include "tools/common/console.h"
#include "tools/common/model_options.h"
#include "tools/common/side_car_options.h"
#include "tools/plan/plan_draft_input.h"
#include "tools/plan/plan_draft_report.h"

namespace thermocline::tools {
namespace {

using base::InvalidArgument;

constexpr double kMsMin = 1e-6, kMsMax = 1e9;

// Parses "10,10.5,11": numbers in [low, high].
Result<std::vector<double>> ParseList(const char* option, const std::string& text, double low,
                                      double high) {
  std::vector<double> out;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string_view item = std::string_view(text).substr(at, end - at);
    const auto value = base::ParseNumber<double>(item);
    if (!value.has_value() || !(*value >= low && *value <= high))
      return InvalidArgument(option, " ", text, ": '", item, "' is no number from ", low, " to ",
                             high);
    out.push_back(*value);
    at = end + 1;
  }
  return out;
}

// Replaces measured values by those of the options.
Status Override(const PlanDraftOptions& o, offline::PairModel& pair) {
  const auto set = [](double value, double unit, double& field) {
    if (value >= 0) field = value * unit;
  };
  set(o.draft_token_ms, 1e-3, pair.draft_token_s);
  set(o.acceptance, 1, pair.phi.p);
  set(o.phi_a, 1, pair.phi.a);
  set(o.phi_floor, 1, pair.phi.c);
  // The token after a fully accepted draft is predicted as well as an accepted one.
  if (o.times.empty()) pair.bonus_hit = pair.phi.p;
  set(o.bonus_hit, 1, pair.bonus_hit);
  set(o.draft_slowdown, 1, pair.draft_slowdown);
  set(o.verify_slowdown, 1, pair.verify_slowdown);
  set(o.round_overhead_ms, 1e-3, pair.round_overhead_s);
  if (!o.correction_hits.empty()) {
    ASSIGN_OR_RETURN(pair.correction_hits, ParseList("--correction-hit", o.correction_hits, 0, 1));
  }
  if (!o.verify_ms.empty()) {
    ASSIGN_OR_RETURN(pair.verify_s, ParseList("--verify-ms", o.verify_ms, kMsMin, kMsMax));
    for (double& time : pair.verify_s) time *= 1e-3;
  }
  pair.path_share = o.path_share >= 0 ? o.path_share : pair.VerifyShare();
  RETURN_IF_ERROR(CheckPhi(pair.phi, "--acceptance, --phi-a, --phi-floor"));
  return CheckHits(pair.correction_hits, "--correction-hit");
}

// Applies the options that assume faster or separate machines.
void Suppose(const PlanDraftOptions& o, offline::PairModel& pair) {
  pair.draft_token_s /= o.draft_speedup;
  for (double& time : pair.verify_s) time /= o.target_speedup;
  if (o.separate) pair.draft_slowdown = pair.verify_slowdown = 1;
}

Result<offline::PairModel> FindPair(const PlanDraftOptions& o) {
  offline::PairModel pair;
  if (!o.times.empty()) {
    ASSIGN_OR_RETURN(pair, ReadPair(o.times));
  } else if (o.draft_token_ms < 0 || o.verify_ms.empty() || o.acceptance < 0) {
    return InvalidArgument(
        "--draft: give --draft-times FILE, a report of `thermocline bench --spec --json`, or "
        "--draft-token-ms, --verify-ms and --acceptance; or --rounds FILE alone");
  }
  RETURN_IF_ERROR(Override(o, pair));
  Suppose(o, pair);
  return pair;
}

// True unless only --rounds is given, which needs hit rates and no pair.
bool WantsPair(const PlanDraftOptions& o) {
  return o.rounds.empty() || !o.times.empty() || o.draft_token_ms >= 0 || !o.verify_ms.empty() ||
         o.acceptance >= 0;
}

}  // namespace

Status PlanDraft(const PlanDraftOptions& o) {
  RETURN_IF_ERROR(CheckPlotPath(o.plot));
  std::optional<DraftPlan> plan;
  std::optional<HitReport> hits;
  if (WantsPair(o)) {
    ASSIGN_OR_RETURN(const offline::PairModel pair, FindPair(o));
    plan = MakeDraftPlan(pair, o.width);
  }
  if (!o.rounds.empty()) {
    ASSIGN_OR_RETURN(const auto rounds, ReadRounds(o.rounds));
    const auto known = [](const offline::RecordedRound& round) { return round.rank >= 0; };
    hits = {.rounds = static_cast<int>(std::count_if(rounds.begin(), rounds.end(), known)),
            .counts = offline::CountHits(rounds)};
  }
  if (!o.plot.empty()) {
    ASSIGN_OR_RETURN(const auto svg, base::FileWriter::Create(o.plot));
    RETURN_IF_ERROR(svg->Append(DraftPlanSvg(plan, hits)));
    RETURN_IF_ERROR(svg->Commit());
  }
  o.json ? PrintJson(DraftPlanJson(plan, hits)) : PrintDraftPlan(plan, hits);
  return OkStatus();
}

void AddPlanDraftOptions(const OptionSet& set, PlanDraftOptions& o) {
  const OptionRef draft = set.Add("--draft", o.draft, "What speculative decoding would gain");
  const auto add = [&](const char* name, const OptionValue& value, const char* help) {
    return set.Add(name, value, std::string(help) + " (--draft)").Needs(draft);
  };
  const auto time = [](double& ms) { return DoubleValue{&ms, 0, kMsMax}; };
  const auto share = [](double& value) { return DoubleValue{&value, 0, 1}; };
  const auto factor = [](double& value) { return DoubleValue{&value, 0.01, 1000}; };
  const auto slowdown = [](double& value) { return DoubleValue{&value, 0.1, 100}; };
  const auto text = [](std::string& value) { return TextValue{&value}; };
  add("--draft-times", text(o.times), "Report of `bench --spec --json`, with what was measured");
  add("--draft-token-ms", time(o.draft_token_ms), "Time of a drafted token");
  add("--verify-ms", text(o.verify_ms),
      "Times of the target's steps of 1, 2, ... tokens: 10,11,12");
  add("--acceptance", share(o.acceptance), "p of phi: share of drafted tokens accepted");
  add("--phi-a", DoubleValue{&o.phi_a, 0, 1e6}, "a of phi (1)");
  add("--phi-floor", share(o.phi_floor), "c of phi (0)");
  add("--correction-hit", text(o.correction_hits),
      "Shares of corrections that are the draft's first, second, ... other token (0.4,0.15)");
  add("--bonus-hit", share(o.bonus_hit),
      "Share of tokens behind a whole draft that are its next (p)");
  add("--draft-slowdown", slowdown(o.draft_slowdown), "Of the draft, while the target runs");
  add("--verify-slowdown", slowdown(o.verify_slowdown), "Of the target, while the draft runs");
  add("--draft-path-share", share(o.path_share),
      "What a further branch adds to a step of the draft, as a share (as the target's steps grow)");
  add("--round-overhead-ms", time(o.round_overhead_ms), "Time of a round beside both");
  add("--target-speedup", factor(o.target_speedup), "What if the target were so many times faster");
  add("--draft-speedup", factor(o.draft_speedup), "What if the draft were");
  add("--separate", BoolValue{&o.separate},
      "What if neither slowed the other down: a GPU and a CPU");
  add("--draft-width", IntValue{&o.width, 1, spec::kAlternatesMax},
      "Tokens guessed behind each accepted length")
      .ShowDefault();
  add("--rounds", text(o.rounds),
      "Recorded rounds, to compare hit rates: lines, or a bench report");
}

}  // namespace thermocline::tools
