// The hot tier's figures for people and scripts.
#pragma once

#include "engine/api/hot_tier.h"
#include "engine/base/json.h"

namespace thermocline::tools {

// {"device", "fallback", "used", "bytes", "neurons", "neurons_all", "predicted_tokens_per_s",
// "planned_share", "active_share": of the active neurons those computed hot, "hot_s", "cold_s",
// "wait_s", "total_s",
// ...}; shares and times are of decoded layers that both sides work on.
Json HotJson(const HotStats& hot);
// Nothing without a hot tier.
void PrintHot(const HotStats& hot);

}  // namespace thermocline::tools
