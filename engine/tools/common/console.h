// What every subcommand shares: exit codes, errors, the progress bar, JSON output.
#pragma once

#include <functional>
#include <string>

#include "engine/base/json.h"
#include "engine/base/status.h"

namespace CLI {
class App;
}

namespace thermocline::tools {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

// A subcommand registers its options on `app` and returns what to run.
using Command = std::function<Status()>;
Command AddRun(CLI::App& app);
Command AddInspect(CLI::App& app);
Command AddPack(CLI::App& app);
Command AddPlan(CLI::App& app);
Command AddConvert(CLI::App& app);
Command AddTokenize(CLI::App& app);
Command AddTemplate(CLI::App& app);
Command AddBench(CLI::App& app);
Command AddCalibrate(CLI::App& app);
Command AddEval(CLI::App& app);
Command AddSynth(CLI::App& app);
Command AddProfile(CLI::App& app);
Command AddTrainPredictor(CLI::App& app);

// A bar on stderr, only if that is a terminal.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ~ProgressBar() { Clear(); }
  void Show(double share);
  void Clear();
  std::function<void(double)> callback() {
    return [this](double share) { Show(share); };
  }

 private:
  std::string label_;
  bool terminal_;
  int percent_ = -1;
};

// One object and a newline on stdout.
void PrintJson(const Json& json);
// All of standard input.
Result<std::string> ReadStdin();

}  // namespace thermocline::tools
