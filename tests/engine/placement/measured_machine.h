// This machine's measurements, kept and changed in a folder of the test.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>

#include "engine/base/file.h"
#include "engine/base/json.h"

namespace thermocline::placement {

// While it lives, measurements are kept in its folder.
class MeasuredMachine {
 public:
  MeasuredMachine() {
    if (const char* before = std::getenv(kVariable); before != nullptr) before_ = before;
    ::setenv(kVariable, folder_.c_str(), 1);
  }
  MeasuredMachine(const MeasuredMachine&) = delete;
  MeasuredMachine& operator=(const MeasuredMachine&) = delete;
  ~MeasuredMachine() {
    before_.has_value() ? ::setenv(kVariable, before_->c_str(), 1) : ::unsetenv(kVariable);
    std::filesystem::remove_all(folder_);
  }

  // Passes each measured machine to `change`, which returns true to save its change. Returns the
  // number of saved ones.
  int Change(const std::function<bool(Json& machine)>& change) const {
    int changed = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(folder_ + "/thermocline/machine")) {
      Json machine = *base::ParseJson(*base::ReadFileToString(entry.path().string()));
      if (!change(machine)) continue;
      std::ofstream(entry.path()) << machine.Dump(0);
      ++changed;
    }
    return changed;
  }

 private:
  static constexpr const char* kVariable = "XDG_CACHE_HOME";

  const std::string folder_ = testing::TempDir() + "measured_machine_" + std::to_string(::getpid());
  std::optional<std::string> before_ = {};
};

}  // namespace thermocline::placement
