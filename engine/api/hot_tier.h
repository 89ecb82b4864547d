// The hot tier as its users see it: its options and its figures.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/index.h"

namespace thermocline {

// kCuda: a GPU is required, and loading fails with the reason otherwise; kAuto: a GPU if one is
// usable, otherwise the CPU.
enum class HotDevice { kAuto, kCpu, kCuda };
inline constexpr std::array<std::string_view, 3> kHotDeviceNames = {"auto", "cpu", "cuda"};

inline std::string_view HotDeviceName(HotDevice device) {
  return kHotDeviceNames[base::Index(device)];
}

struct HotOptions {
  HotDevice device = HotDevice::kCpu;
  // The size of the hot tier. 0: all free memory of a GPU; on the CPU no hot tier.
  std::int64_t bytes = 0;
  // On the CPU: the number of kernel threads given to a second partition of the CPU; 0 = half.
  int threads = 0;
  std::string placement = {};  // file of `thermocline plan --out`; "" = planned when loading
  bool calibrate = false;      // measure the machine even if it was measured before
};

struct HotStats {
  bool used = false;
  std::string device = {};    // "cpu" or the GPU's name; the device of all layers if not used
  std::string fallback = {};  // why `auto` did not use a GPU; "" = it did, or was not set
  std::int64_t bytes = 0;     // of neurons
  std::int64_t neurons = 0, neurons_all = 0;  // of a mixture: experts
  double planned_share = 0;                   // of active_hot in both, by the profile; 0: no plan
  double predicted_tokens_per_s = 0;          // by the plan
  // Since the start, over layers of decoded tokens computed on both sides.
  std::int64_t layers = 0;
  std::int64_t active_hot = 0, active_cold = 0;           // neurons computed
  double hot_s = 0, cold_s = 0, wait_s = 0, total_s = 0;  // hot and cold run at the same time
};

}  // namespace thermocline
