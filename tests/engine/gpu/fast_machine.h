// A machine with an emulated device whose cached measurements are made ideally fast.
#pragma once

#include <optional>

#include "tests/engine/placement/measured_machine.h"

namespace thermocline::gpu {

// Keeps this program's measurements in a separate place, from SetUp to TearDown.
class FastMachine {
 public:
  static void SetUp() { machine_.emplace(); }
  static void TearDown() { machine_.reset(); }

  // Changes the device's cached measurements. Requires: it was measured.
  static void MakeFast() {
    const int changed = machine_->Change([](Json& machine) {
      if (!machine.Find("hot_homes")->as_bool()) return false;
      SetSide(machine, "hot", 1e15, 0.0, 0.0);
      // The speeds of the CPU and the flash are set, too, since those of a busy machine would
      // change the plan.
      SetSide(machine, "cold", 1e10, 1e-5, 1e-8);
      machine.Set("flash_reads_per_s", 1e5);
      machine.Set("flash_bytes_per_s", 1e9);
      machine.Set("sync_s", 0.0);
      machine.Set("link_bytes_per_s", 1e15);
      return true;
    });
    ASSERT_EQ(changed, 1);
  }

 private:
  static void SetSide(Json& machine, const char* name, double rate, double layer_s, double row_s) {
    Json side = *machine.Find(name);
    for (const char* each : {"dense_bytes_per_s", "rows_bytes_per_s", "predictor_bytes_per_s",
                             "decide_bytes_per_s", "whole_bytes_per_s"})
      side.Set(each, rate);
    side.Set("layer_s", layer_s);
    side.Set("row_s", row_s);
    machine.Set(name, side);
  }

  static inline std::optional<placement::MeasuredMachine> machine_;
};

}  // namespace thermocline::gpu
