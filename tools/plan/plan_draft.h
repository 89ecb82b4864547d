// `thermocline plan --draft`: predicts the gain of a draft model on a machine, and the best mode.
#pragma once

#include <string>

#include "engine/base/status.h"
#include "tools/common/command_line.h"

namespace thermocline::tools {

// Negative numbers and empty lists (comma-separated) mean not given.
struct PlanDraftOptions {
  bool draft = false;
  std::string times, rounds;  // reports of `bench --spec --json`
  double draft_token_ms = -1, acceptance = -1, phi_a = -1, phi_floor = -1, bonus_hit = -1;
  std::string verify_ms, correction_hits;
  double draft_slowdown = -1, verify_slowdown = -1, round_overhead_ms = -1;
  double path_share = -1;
  double target_speedup = 1, draft_speedup = 1;
  bool separate = false;
  int width = 2;
  std::string plot;
  bool json = false;
};

// Adds --draft and the options that need it.
void AddPlanDraftOptions(const OptionSet& set, PlanDraftOptions& options);
// InvalidArgument, NotFound: an option, or a file, its field and value.
Status PlanDraft(const PlanDraftOptions& options);

}  // namespace thermocline::tools
