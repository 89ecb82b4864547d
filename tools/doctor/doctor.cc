// `thermocline doctor`: checks if this machine is ready, and advises on changes.
#include <algorithm>
#include <cstdio>

#include "tools/common/command_line.h"
#include "tools/common/console.h"
#include "tools/doctor/checks.h"

namespace thermocline::tools {
namespace {

struct Options {
  std::string model = "tidepool", config, root = "/";
  bool disk = true, json = false;
};

std::vector<Finding> Examine(const Options& o) {
  const MachineFiles files(o.root);
  std::vector<Finding> findings = {
      CheckProcessor(files),   CheckMemory(files),   CheckHugePages(files), CheckLockedMemory(),
      CheckIoUring(files),     CheckGpuNodes(files), CheckGpu(files),       CheckPowerMode(files),
      CheckTemperature(files), CheckModel(o.model)};
  if (o.disk) findings.push_back(CheckDisk(o.model));
  if (!o.config.empty()) findings.push_back(CheckConfig(o.config));
  return findings;
}

void Print(const std::vector<Finding>& findings) {
  for (const Finding& finding : findings) {
    std::printf("%-8s %-20s %s\n", VerdictName(finding.verdict), finding.name.c_str(),
                finding.seen.c_str());
    if (!finding.advice.empty()) std::printf("%30s-> %s\n", "", finding.advice.c_str());
  }
}

Status Doctor(const Options& o) {
  const std::vector<Finding> findings = Examine(o);
  const auto worst =
      std::max_element(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
        return a.verdict < b.verdict;
      })->verdict;
  if (o.json) {
    Json::Array checks;
    for (const Finding& finding : findings) checks.push_back(ToJson(finding));
    PrintJson(Json::Object{{"verdict", VerdictName(worst)}, {"checks", std::move(checks)}});
  } else {
    Print(findings);
  }
  if (worst != Verdict::kError) return OkStatus();
  return base::FailedPrecondition("this machine is not ready: see the errors above");
}

}  // namespace

Command AddDoctor(const OptionSet& set) {
  auto o = std::make_shared<Options>();
  set.Add("model", o->model, "Model to look at: a file, folder or built-in name").ShowDefault();
  set.Add("--config", o->config, "Configuration of the daemon, to be checked too");
  set.Add("!--no-disk", o->disk, "Do not measure the disk that the model lies on (two seconds)");
  set.Add("--root", o->root, "Where /proc, /sys and /dev are, for a machine's files elsewhere");
  set.Add("--json", o->json, "One JSON object on standard output");
  return [o] { return Doctor(*o); };
}

}  // namespace thermocline::tools
