// A machine whose two sides are alike and wait for nothing: plans by its speeds use both for
// however small a model, whatever the machine that runs the test is busy with.
#pragma once

#include "engine/engine.h"
#include "tests/engine/placement/measured_machine.h"

namespace thermocline::placement {

// As long as it lives, what a plan knows of this machine is what stands here.
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
