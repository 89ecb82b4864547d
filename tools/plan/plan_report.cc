#include "tools/plan/plan_report.h"

#include <cmath>
#include <cstdio>

#include "engine/base/strings.h"
#include "engine/placement/numbers.h"

namespace thermocline::tools {
namespace {

using placement::LayerPlacement;
using placement::Placement;

using placement::D;

Json LayerJson(std::size_t index, const LayerPlacement& l) {
  return Json::Object{{"layer", index},
                      {"home", l.home_hot ? "hot" : "cold"},
                      {"hot", l.hot},
                      {"memory", l.memory},
                      {"flash", l.flash},
                      {"home_s", l.home_s},
                      {"hot_s", l.hot_s},
                      {"cold_s", l.cold_s},
                      {"sync_s", l.sync_s},
                      {"flash_s", l.flash_s},
                      {"load_share", l.active > 0 ? l.active_hot / l.active : 0}};
}

// True if one line of the table can show both layers: they have the same home and, to a hundredth,
// the same shares.
bool Alike(const LayerPlacement& a, const LayerPlacement& b) {
  const auto share = [](const LayerPlacement& l, std::int64_t part) {
    return std::lround(100 * D(part) / D(l.hot + l.memory + l.flash));
  };
  return a.home_hot == b.home_hot && share(a, a.hot) == share(b, b.hot) &&
         share(a, a.flash) == share(b, b.flash);
}

void PrintLine(std::size_t first, std::size_t last, const LayerPlacement& l) {
  const std::string range = first == last ? StrCat(first) : StrCat(first, "-", last);
  const double all = D(l.hot + l.memory + l.flash);
  std::printf("%-9s %-5s %5.1f%% %5.1f%% %5.1f%%  %5.1f%%  %8.3f %8.3f %8.3f %8.3f %8.3f\n",
              range.c_str(), l.home_hot ? "hot" : "cold", 100 * D(l.hot) / all,
              100 * D(l.memory) / all, 100 * D(l.flash) / all,
              l.active > 0 ? 100 * l.active_hot / l.active : 0.0, 1e3 * l.home_s, 1e3 * l.hot_s,
              1e3 * l.cold_s, 1e3 * l.sync_s, 1e3 * l.flash_s);
}

void PrintLayers(const Placement& p) {
  std::printf(
      "layers    home     hot    RAM  flash    load   home ms   hot ms  cold ms  sync ms flash "
      "ms\n");
  for (std::size_t first = 0; first < p.layers.size();) {
    std::size_t last = first;
    while (last + 1 < p.layers.size() && Alike(p.layers[first], p.layers[last + 1])) ++last;
    PrintLine(first, last, p.layers[first]);
    first = last + 1;
  }
}

void PrintTier(const char* name, std::int64_t used, std::int64_t of) {
  std::printf("  %-12s %10s", name, base::HumanBytes(D(used)).c_str());
  if (of >= 0) std::printf(" of %s", base::HumanBytes(D(of)).c_str());
  std::printf("\n");
}

}  // namespace

Json PlanJson(const PlanReport& r) {
  const Placement& p = r.placement;
  Json::Array layers;
  for (std::size_t l = 0; l < p.layers.size(); ++l) layers.push_back(LayerJson(l, p.layers[l]));
  Json what_ifs{Json::Object()};
  for (const offline::WhatIf& each : r.what_ifs)
    what_ifs.Set(LimitName(each.limit), each.tokens_per_s);
  return Json::Object{{"model", r.model},
                      {"machine", r.problem.machine.ToJson()},
                      {"ffn_mode", r.mode},
                      {"frequencies", r.frequencies},
                      {"context_length", r.context_length},
                      {"batch", r.problem.batch},
                      {"tokens_per_s", p.tokens_per_s()},
                      {"token_s", p.token_s},
                      {"head", p.head_hot ? "hot" : "cold"},
                      {"head_s", p.head_s},
                      {"switch_s", p.switch_s},
                      {"load_share", p.load_share},
                      {"hot_bytes", p.hot_bytes},
                      {"memory_bytes", p.memory_bytes},
                      {"flash_bytes", p.flash_bytes},
                      {"deciding_rows_held", p.deciding_held},
                      {"limit", LimitName(WhatLimits(p, r.what_ifs))},
                      {"what_if_doubled", std::move(what_ifs)},
                      {"gap", p.gap},
                      {"solve_ms", r.solve_ms},
                      {"layers", std::move(layers)}};
}

void PrintPlan(const PlanReport& r) {
  const Placement& p = r.placement;
  const placement::Machine& m = r.problem.machine;
  std::printf("%s on %s\nmode %s, context %d, %s\n\n", r.model.c_str(), m.name.c_str(),
              r.mode.c_str(), r.context_length, r.frequencies.c_str());
  PrintLayers(p);
  std::printf("\nhead: %s, %.3f ms; changes of side: %.3f ms\nbytes by tier:\n",
              p.head_hot ? "hot" : "cold", 1e3 * p.head_s, 1e3 * p.switch_s);
  const bool unified = m.unified && m.hot.has_value();
  if (m.hot.has_value()) PrintTier(unified ? "memory" : "hot", p.hot_bytes, m.hot_bytes);
  if (!unified) PrintTier("RAM", p.memory_bytes, m.memory_bytes);
  PrintTier("flash", p.flash_bytes, -1);
  std::printf("load share: %.1f%% of a token's active neurons are computed hot\n",
              100 * p.load_share);
  std::printf("predicted: %.2f tokens/s (%.2f ms a token)\n", p.tokens_per_s(), 1e3 * p.token_s);
  std::printf("limited by: %s\nwith twice of it (sync: half):",
              LimitName(WhatLimits(p, r.what_ifs)));
  for (const offline::WhatIf& each : r.what_ifs)
    std::printf(" %s %.2f;", LimitName(each.limit), each.tokens_per_s);
  std::printf(" tokens/s\nsolved in %.0f ms, ", r.solve_ms);
  if (p.gap == 0)
    std::printf("none is faster in batches of %d\n", r.problem.batch);
  else
    std::printf("none is faster by more than %.2g%% in batches of %d\n", 100 * p.gap,
                r.problem.batch);
}

}  // namespace thermocline::tools
