// The reports of `thermocline plan` about a placement: text, JSON and SVG.
#pragma once

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/offline/what_if.h"

namespace thermocline::tools {

struct PlanReport {
  std::string model, frequencies, mode;  // path; source of the frequencies; description
  int context_length = 0;
  const placement::Problem& problem;
  const placement::Placement& placement;
  const std::vector<offline::WhatIf>& what_ifs;
  double solve_ms = 0;
};

Json PlanJson(const PlanReport& report);
void PrintPlan(const PlanReport& report);
// An SVG: a heat map of layer x tier, and the seconds and load share of each layer.
std::string PlanSvg(const PlanReport& report);

}  // namespace thermocline::tools
