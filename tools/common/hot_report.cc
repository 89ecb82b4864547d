#include "tools/common/hot_report.h"

#include <algorithm>
#include <cstdio>

#include "engine/base/ratio.h"
#include "engine/base/strings.h"

namespace thermocline::tools {
namespace {

double HotShare(const HotStats& hot) {
  return base::Ratio(hot.active_hot, hot.active_hot + hot.active_cold);
}

}  // namespace

Json HotJson(const HotStats& hot) {
  return Json::Object{{"device", hot.device},
                      {"fallback", hot.fallback},
                      {"used", hot.used},
                      {"bytes", hot.bytes},
                      {"neurons", hot.neurons},
                      {"neurons_all", hot.neurons_all},
                      {"predicted_tokens_per_s", hot.predicted_tokens_per_s},
                      {"planned_share", hot.planned_share},
                      {"active_share", HotShare(hot)},
                      {"hot_s", hot.hot_s},
                      {"cold_s", hot.cold_s},
                      {"wait_s", hot.wait_s},
                      {"total_s", hot.total_s}};
}

void PrintHot(const HotStats& hot) {
  if (!hot.used) return;
  std::printf("\nhot tier: %s, %s of neurons, %.1f%% of all; planned for %.1f tokens/s\n",
              hot.device.c_str(), base::HumanBytes(hot.bytes).c_str(),
              100 * static_cast<double>(hot.neurons) / static_cast<double>(hot.neurons_all),
              hot.predicted_tokens_per_s);
  if (hot.planned_share > 0)
    std::printf("  by the profile %.1f%% of what is active is there\n", 100 * hot.planned_share);
  if (hot.total_s <= 0) return;
  std::printf(
      "  %.1f%% of the active neurons computed there; of the layers' time: hot side %.1f%%, cold "
      "side %.1f%%, at the same time\n",
      100 * HotShare(hot), 100 * hot.hot_s / hot.total_s, 100 * hot.cold_s / hot.total_s);
}

}  // namespace thermocline::tools
