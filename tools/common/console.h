// Parts shared by all subcommands: exit codes, errors, the progress bar, JSON output.
#pragma once

#include <functional>
#include <string>

#include "engine/base/json.h"
#include "engine/base/status.h"

namespace thermocline::tools {

class OptionSet;

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

// A subcommand adds its options to `set` and returns the function to run.
using Command = std::function<Status()>;
Command AddRun(const OptionSet& set);
Command AddInspect(const OptionSet& set);
Command AddPack(const OptionSet& set);
Command AddPlan(const OptionSet& set);
Command AddConvert(const OptionSet& set);
Command AddImatrix(const OptionSet& set);
Command AddDoctor(const OptionSet& set);
Command AddTokenize(const OptionSet& set);
Command AddTemplate(const OptionSet& set);
Command AddBench(const OptionSet& set);
Command AddCalibrate(const OptionSet& set);
Command AddEval(const OptionSet& set);
Command AddSynth(const OptionSet& set);
Command AddProfile(const OptionSet& set);
Command AddPull(const OptionSet& set);
Command AddList(const OptionSet& set);
Command AddRemove(const OptionSet& set);
Command AddPs(const OptionSet& set);
Command AddTrainPredictor(const OptionSet& set);
Command AddLaunch(const OptionSet& set);

// Replaces kExitDone or kExitFailed as this process's exit status, for a command that passes on the
// status of a program that it has run.
void SetExitStatus(int status);
// The status of SetExitStatus, otherwise `usual`.
int ExitStatusOr(int usual);

// The path of thermoclined beside this program.
std::string DaemonPath();

// A progress bar on stderr, shown only on a terminal.
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

// Prints one object and a newline on stdout.
void PrintJson(const Json& json);
// Reads all of standard input.
Result<std::string> ReadStdin();

}  // namespace thermocline::tools
