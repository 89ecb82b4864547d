// A machine with two equal sides and no synchronization cost: plans by its speeds use both sides
// for models of any size, even if the test's machine is busy.
#pragma once

#include "engine/engine.h"
#include "tests/engine/placement/measured_machine.h"

namespace thermocline::placement {

// While it lives, plans use these values instead of measurements of this machine.
class AlikeSides {
 public:
  // Requires: `config` has a hot tier on the CPU.
  explicit AlikeSides(const EngineConfig& config) {
    const auto measured = Engine::Load(config);
    EXPECT_TRUE(measured.ok()) << measured.status().message();
    const int changed = machine_.Change([](Json& machine) {
      Json side = *machine.Find("cold");
      side.Set("layer_s", 0.0);
      machine.Set("cold", side);
      machine.Set("hot", side);
      machine.Set("sync_s", 0.0);
      machine.Set("link_bytes_per_s", 1e15);
      return true;
    });
    EXPECT_GT(changed, 0);
  }

 private:
  const MeasuredMachine machine_;
};

}  // namespace thermocline::placement
