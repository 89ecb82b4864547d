// A machine whose two sides are alike and wait for nothing: plans by its speeds use both for
// however small a model, whatever the machine that runs the test is busy with.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/engine.h"

namespace thermocline::placement {

// As long as it lives, what a plan knows of this machine is what stands here.
class AlikeSides {
 public:
  // Requires: `config` has a hot tier on the CPU.
  explicit AlikeSides(const EngineConfig& config) {
    ::setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
    const auto measured = Engine::Load(config);
    EXPECT_TRUE(measured.ok()) << measured.status().message();
    int changed = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(folder_ + "/thermocline/machine")) {
      Json machine = *base::ParseJson(*base::ReadFileToString(entry.path().string()));
      Json side = *machine.Find("cold");
      side.Set("layer_s", 0.0);
      machine.Set("cold", side);
      machine.Set("hot", side);
      machine.Set("sync_s", 0.0);
      machine.Set("link_bytes_per_s", 1e15);
      std::ofstream(entry.path()) << machine.Dump(0);
      ++changed;
    }
    EXPECT_GT(changed, 0);
  }
  AlikeSides(const AlikeSides&) = delete;
  AlikeSides& operator=(const AlikeSides&) = delete;
  ~AlikeSides() {
    ::unsetenv("XDG_CACHE_HOME");
    std::filesystem::remove_all(folder_);
  }

 private:
  const std::string folder_ = testing::TempDir() + "alike_sides_" + std::to_string(::getpid());
};

}  // namespace thermocline::placement
