#include "server/metrics/expert_metrics.h"

#include <algorithm>

#include "engine/base/index.h"

namespace thermocline::server {
namespace {

constexpr int kRanges = 16;  // at most, per layer; limits the number of time series

void ExposeLayer(const std::string& layer, std::span<const std::int64_t> uses, MetricSet& set) {
  const int experts = base::IntSize(uses);
  const int width = (experts + kRanges - 1) / kRanges;
  for (int first = 0; first < experts; first += width) {
    const int count = std::min(width, experts - first);
    set.CatchUp("expert_uses_total", AllUses(uses.subspan(first, count)),
                {{"layer", layer}, {"experts", StrCat(first, "-", first + count - 1)}});
  }
  set.Set("expert_hottest_share", HottestShare(uses, 0.1), {{"layer", layer}, {"hottest", "0.1"}});
  set.Set("expert_hottest_share", HottestShare(uses, 0.3), {{"layer", layer}, {"hottest", "0.3"}});
  set.Set("router_load_max", LoadOfMostUsed(uses), {{"layer", layer}});
  set.Set("experts_unused", static_cast<double>(std::count(uses.begin(), uses.end(), 0)),
          {{"layer", layer}});
}

// Exposes the tiers of the experts that decoded tokens used. Short prompts' tokens count as memory
// misses, too, so misses are capped at the uses.
void ExposeExpertTiers(const EngineStats& stats, MetricSet& set) {
  const std::int64_t all = AllUses(stats.experts.uses);
  const std::int64_t hot = stats.hot.used ? std::min(all, stats.hot.active_hot) : 0;
  const FlashCounters& flash = stats.flash.counters;
  const std::int64_t read =
      stats.flash.used ? std::clamp<std::int64_t>(flash.needed - flash.hits, 0, all - hot) : 0;
  set.CatchUp("expert_tier_uses_total", hot, {{"tier", "hot"}});
  set.CatchUp("expert_tier_uses_total", read, {{"tier", "flash"}});
  set.CatchUp("expert_tier_uses_total", all - hot - read, {{"tier", "ram"}});
}

}  // namespace

void ExposeExperts(const EngineStats& stats, MetricSet& set) {
  const ExpertStats& experts = stats.experts;
  for (int layer = 0; layer < experts.layers(); ++layer)
    ExposeLayer(StrCat(layer), experts.of(layer), set);
  ExposeExpertTiers(stats, set);
  set.CatchUp("expert_guesses_total", experts.guessed_right, {{"outcome", "right"}});
  set.CatchUp("expert_guesses_total", experts.guessed - experts.guessed_right,
              {{"outcome", "wrong"}});
}

}  // namespace thermocline::server
