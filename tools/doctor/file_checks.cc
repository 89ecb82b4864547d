#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <optional>

#include "engine/base/file.h"
#include "engine/base/piped_process.h"
#include "engine/base/strings.h"
#include "engine/base/system_memory.h"
#include "engine/load/kv_advice.h"
#include "engine/model/model_file.h"
#include "engine/model/open/builtin.h"
#include "engine/model/open/open_model.h"
#include "engine/store/device_probe.h"
#include "tools/common/console.h"
#include "tools/doctor/checks.h"

namespace thermocline::tools {
namespace {

// Runs a program to its end. Returns its output and exit code, or nullopt if it cannot be started.
struct Ran {
  int code = -1;
  std::string output;
};
std::optional<Ran> RunProgram(const std::vector<std::string>& words) {
  using Process = base::PipedProcess;
  const auto process = Process::Start(words, Process::Errors::kWithOutput);
  if (!process.ok()) return std::nullopt;
  Ran out;
  for (std::string text = (*process)->Read(); !text.empty(); text = (*process)->Read())
    out.output += text;
  out.code = (*process)->Wait();
  while (!out.output.empty() && out.output.back() == '\n') out.output.pop_back();
  return out;
}

std::uint64_t FileBytes(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  return error ? 0 : size;
}

}  // namespace

Finding CheckModel(const std::string& model) {
  const auto path = model::ResolveModel(model);
  if (!path.ok())
    return {"model", Verdict::kError, path.status().message(), "give the path of a model's file"};
  const auto file = model::OpenModelFile(*path);
  if (!file.ok())
    return {"model", Verdict::kError, file.status().message(),
            "download it again, or convert it with `thermocline convert`"};
  const auto bytes = static_cast<double>(FileBytes(*path));
  const auto allowed = static_cast<double>(base::MemoryAllowance());
  Finding out{.name = "model",
              .seen = StrCat(*path, ": ", (**file).format, ", ",
                             (**file).config.num_parameters() / 1'000'000, "M parameters, ",
                             base::HumanBytes(bytes)),
              .advice = ""};
  if (bytes > 0.9 * allowed && !base::PathExists(*path + ".tcb")) {
    out.verdict = Verdict::kWarning;
    out.advice = StrCat("it does not fit the ", base::HumanBytes(allowed),
                        " that may be used: `thermocline pack` writes the bundle that neurons on "
                        "flash are read from, or take a smaller type");
  }
  constexpr int kLongPrompt = 16'384;  // tokens: an agent's first one has 7,000 to 30,000
  const model::ModelConfig& config = (**file).config;
  if (out.advice.empty() && config.max_position_embeddings >= kLongPrompt)
    out.advice = load::KvAdvice(config, kernels::KvType::kF16, kLongPrompt, *kernels::CpuOps());
  return out;
}

Finding CheckDisk(const std::string& model) {
  constexpr const char* kName = "disk";
  const auto resolved = model::ResolveModel(model);
  if (!resolved.ok()) return {kName, Verdict::kNote, "no model's file to measure by", ""};
  std::string path = *resolved;
  if (base::PathExists(path + ".tcb")) path += ".tcb";
  const auto curve = store::DeviceCurve(path);
  if (!curve.ok()) return {kName, Verdict::kWarning, curve.status().message(), ""};
  const double at_64k = curve->Bandwidth(64 << 10) / 1e9;
  char seen[200];
  std::snprintf(seen, sizeof seen, "%s (%s): %.2f GB/s in reads of 64 KiB, %.2f GB/s in one pass",
                curve->source().device.c_str(), curve->source().method.c_str(), at_64k,
                curve->SequentialBandwidth() / 1e9);
  Finding out{.name = kName, .seen = seen, .advice = ""};
  if (at_64k < 0.5) {
    out.verdict = Verdict::kNote;
    out.advice =
        "too slow for neurons on flash; a model that memory holds is only loaded from it. "
        "`thermocline bench --flash` shows its whole curve";
  }
  return out;
}

Finding CheckConfig(const std::string& path) {
  constexpr const char* kName = "configuration";
  const std::string daemon = DaemonPath();
  const auto ran = RunProgram({daemon, "--config", path, "--check"});
  if (!ran.has_value())
    return {kName, Verdict::kWarning, StrCat(daemon, " cannot be started"),
            "install the daemon, too"};
  if (ran->code == 0) return {kName, Verdict::kOk, StrCat(path, " is valid"), ""};
  return {kName, Verdict::kError, ran->output, "config/thermocline.yaml explains every key"};
}

}  // namespace thermocline::tools
