// A machine whose emulated device is as fast as a plan could wish: what was measured of it,
// changed.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "engine/base/file.h"
#include "engine/base/json.h"

namespace thermocline::gpu {

// Where this program's measurements are kept, from SetUp to TearDown.
class FastMachine {
 public:
  static void SetUp() { ::setenv("XDG_CACHE_HOME", CacheFolder().c_str(), 1); }
  static void TearDown() { std::filesystem::remove_all(CacheFolder()); }

  // Changes what is remembered of the device. Requires: it was measured.
  static void MakeFast() {
    int changed = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(CacheFolder() + "/thermocline/machine")) {
      Json machine = *base::ParseJson(*base::ReadFileToString(entry.path().string()));
      if (!machine.Find("hot_homes")->as_bool()) continue;
      Json hot = *machine.Find("hot");
      for (const char* rate : {"dense_bytes_per_s", "rows_bytes_per_s", "predictor_bytes_per_s",
                               "decide_bytes_per_s", "whole_bytes_per_s"})
        hot.Set(rate, 1e15);
      hot.Set("layer_s", 0.0);
      hot.Set("row_s", 0.0);
      machine.Set("hot", hot);
      // Of the CPU and the flash, too: on a busy machine their measured speeds move the plan.
      Json cold = *machine.Find("cold");
      for (const char* rate : {"dense_bytes_per_s", "rows_bytes_per_s", "predictor_bytes_per_s",
                               "decide_bytes_per_s", "whole_bytes_per_s"})
        cold.Set(rate, 1e10);
      cold.Set("layer_s", 1e-5);
      cold.Set("row_s", 1e-8);
      machine.Set("cold", cold);
      machine.Set("flash_reads_per_s", 1e5);
      machine.Set("flash_bytes_per_s", 1e9);
      machine.Set("sync_s", 0.0);
      machine.Set("link_bytes_per_s", 1e15);
      std::ofstream(entry.path()) << machine.Dump(0);
      ++changed;
    }
    ASSERT_EQ(changed, 1);
  }

 private:
  static std::string CacheFolder() {
    return testing::TempDir() + "fast_machine_" + std::to_string(::getpid());
  }
};

}  // namespace thermocline::gpu
