// The reports of `thermocline plan --draft`: text, JSON and SVG.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/index.h"
#include "engine/base/json.h"
#include "engine/base/ratio.h"
#include "engine/offline/hit_rates.h"
#include "engine/offline/simulator.h"

namespace thermocline::tools {

inline constexpr SpecMode kPlannedModes[] = {SpecMode::kOff, SpecMode::kSync, SpecMode::kBranch,
                                             SpecMode::kExhaustive};
inline constexpr std::int64_t kPlannedTokens = 100000;  // of a simulated run

// A pair, simulated in every mode with every draft length.
struct DraftPlan {
  offline::PairModel pair;
  int width = 0;  // tokens guessed for each accepted length
  // [mode][n]
  std::array<std::array<offline::SimulatedRun, kDraftTokensMax + 1>, std::size(kPlannedModes)>
      runs = {};

  const offline::SimulatedRun& at(SpecMode mode, int n) const { return runs[base::Index(mode)][n]; }
  int BestLength(SpecMode mode) const;
  // The simplest mode that no other beats by more than 1%.
  SpecMode BestMode() const;
};
DraftPlan MakeDraftPlan(const offline::PairModel& pair, int width);

// Hits among `rounds` rounds with a known rank.
struct HitReport {
  int rounds = 0;
  offline::HitCounts counts = {};

  double Rate(offline::HitPolicy policy, int w) const {
    const int hits = counts[base::Index(policy)][w - 1];
    return base::Ratio(hits, rounds);
  }
};

// Either part may be missing.
Json DraftPlanJson(const std::optional<DraftPlan>& plan, const std::optional<HitReport>& hits);
void PrintDraftPlan(const std::optional<DraftPlan>& plan, const std::optional<HitReport>& hits);
// An SVG: speed over draft length for the pair and for several acceptance rates, and hits over
// branches.
std::string DraftPlanSvg(const std::optional<DraftPlan>& plan,
                         const std::optional<HitReport>& hits);

}  // namespace thermocline::tools
