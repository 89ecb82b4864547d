// The hot tier's statistics, as text and JSON.
#pragma once

#include "engine/api/hot_tier.h"
#include "engine/base/json.h"

namespace thermocline::tools {

// {"device", "fallback", "used", "bytes", "neurons", "neurons_all", "predicted_tokens_per_s",
// "planned_share", "active_share": the share of active neurons that were computed hot, "hot_s",
// "cold_s", "wait_s", "total_s", ...}; shares and times are of decoded layers that both sides work
// on.
Json HotJson(const HotStats& hot);
// Prints no line without a hot tier.
void PrintHot(const HotStats& hot);

}  // namespace thermocline::tools
