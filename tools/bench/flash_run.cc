#include "tools/bench/flash_run.h"

#include <algorithm>
#include <cstdio>

namespace thermocline::tools {

void FlashRun::Add(const FlashCounters& before, const FlashCounters& after, double seconds,
                   int tokens) {
  const auto add = [&](auto FlashCounters::*member) {
    sum_.*member += after.*member - before.*member;
  };
  for (const auto member :
       {&FlashCounters::reads, &FlashCounters::bytes, &FlashCounters::wanted_bytes,
        &FlashCounters::needed, &FlashCounters::hits, &FlashCounters::ahead_useful_bytes,
        &FlashCounters::ahead_wasted_bytes, &FlashCounters::evictions, &FlashCounters::overflows})
    add(member);
  for (const auto member :
       {&FlashCounters::wait_s, &FlashCounters::manage_s, &FlashCounters::arrive_s})
    add(member);
  seconds_ += seconds;
  tokens_ += tokens;
}

Json FlashRun::ToJson(const load::LoadedModel& model) const {
  const bool neurons = model.flash != nullptr;
  return Json::Object{
      {"method", neurons ? model.flash->reader().method() : model.stream->reader().method()},
      {"tier", neurons ? "neurons" : "layers"},
      {"deciding_held", model.memory.deciding_held},
      {"cached_neurons", model.memory.slots},
      {"hit_rate", neurons ? Json(hit_rate()) : Json()},
      {"needed_per_token", PerToken(sum_.needed)},
      {"bytes_per_token", PerToken(sum_.bytes)},
      {"wanted_bytes_per_token", PerToken(sum_.wanted_bytes)},
      {"reads_per_token", PerToken(sum_.reads)},
      {"wait_share", Share(sum_.wait_s)},
      {"manage_share", Share(sum_.manage_s)},
      {"arrive_share", Share(sum_.arrive_s)},
      {"device_gb_s", static_cast<double>(sum_.bytes) / std::max(1e-9, seconds_) / 1e9},
      {"ahead_useful_bytes_per_token", PerToken(sum_.ahead_useful_bytes)},
      {"ahead_wasted_bytes_per_token", PerToken(sum_.ahead_wasted_bytes)},
      {"evictions_per_token", PerToken(sum_.evictions)},
      {"overflows_per_token", PerToken(sum_.overflows)}};
}

void FlashRun::Print(const load::LoadedModel& model) const {
  std::printf("\n%s", model.memory.Table().c_str());
  if (model.flash != nullptr) {
    std::printf("\nflash: %.1f%% of %.0f neurons a token found in memory; %s\n", 100 * hit_rate(),
                PerToken(sum_.needed),
                model.memory.deciding_held ? "all gate rows are" : "gate rows come along");
  }
  std::printf(
      "  %.2f MB in %.0f reads a token, of them %.2f MB asked for; read ahead: %.2f MB useful, "
      "%.2f MB not\n",
      PerToken(sum_.bytes) / 1e6, PerToken(sum_.reads), PerToken(sum_.wanted_bytes) / 1e6,
      PerToken(sum_.ahead_useful_bytes) / 1e6, PerToken(sum_.ahead_wasted_bytes) / 1e6);
  std::printf(
      "  of a token's time: %.1f%% waiting, %.1f%% managing the cache, %.1f%% checking and "
      "placing what came; %.2f GB/s over all\n",
      100 * Share(sum_.wait_s), 100 * Share(sum_.manage_s), 100 * Share(sum_.arrive_s),
      static_cast<double>(sum_.bytes) / std::max(1e-9, seconds_) / 1e9);
}

}  // namespace thermocline::tools
