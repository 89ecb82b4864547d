// What `thermocline plan` says and draws about a placement.
#pragma once

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/offline/what_if.h"

namespace thermocline::tools {

struct PlanReport {
  std::string model, frequencies, mode;  // path; where the frequencies are from; for people
  int context_length = 0;
  const placement::Problem& problem;
  const placement::Placement& placement;
  const std::vector<offline::WhatIf>& what_ifs;
  double solve_ms = 0;
};

Json PlanJson(const PlanReport& report);
void PrintPlan(const PlanReport& report);
// Layer x tier as a heat map, and the seconds and load share of each layer.
std::string PlanSvg(const PlanReport& report);

}  // namespace thermocline::tools
