// `thermocline plan --replay`: simulates caches on a trace.
#pragma once

#include <string>

#include "engine/base/status.h"
#include "engine/offline/replay.h"
#include "tools/common/command_line.h"

namespace thermocline::tools {

struct ReplayOptions {
  std::string trace, memory = "10%,20%,30%,40%,50%,60%,70%,80%,90%", plot;
  double half_life = store::kHalfLife;
  bool json = false;
};

// Adds --replay, --memory and --half-life.
void AddReplayOptions(const OptionSet& set, ReplayOptions& options);
Status PlanReplay(const ReplayOptions& options);

}  // namespace thermocline::tools
