#include "tools/plan/plan_machine.h"

#include <algorithm>
#include <filesystem>

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/system_memory.h"
#include "engine/load/loaded_model.h"
#include "engine/load/this_machine.h"
#include "engine/model/open/builtin.h"
#include "tools/common/model_options.h"

namespace thermocline::tools {
namespace {

// The folder beside the built-in models: config/machines of the sources, machines of an
// installation.
Result<std::filesystem::path> MachinesFolder() {
  ASSIGN_OR_RETURN(const std::string model, model::ResolveModel("tidepool"));
  return std::filesystem::path(model).parent_path().parent_path() / "machines";
}

Result<std::string> FindFile(const std::string& machine) {
  if (base::PathExists(machine) && !base::IsDirectory(machine)) return machine;
  ASSIGN_OR_RETURN(const std::filesystem::path folder, MachinesFolder());
  const std::string path = (folder / (machine + ".json")).string();
  const bool plain = machine.find('/') == std::string::npos;
  if (plain && base::PathExists(path)) return path;
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return base::NotFound("--machine ", machine, ": neither a file nor a name in ", folder.string(),
                        " (", list, ")");
}

Result<placement::Machine> ReadMachine(const std::string& machine) {
  ASSIGN_OR_RETURN(const std::string path, FindFile(machine));
  ASSIGN_OR_RETURN(const std::string text, base::ReadFileToString(path, 1 << 20));
  const auto json = base::ParseJson(text);
  if (!json.ok()) return json.status().Annotate(path);
  auto out = placement::Machine::FromJson(*json);
  if (!out.ok()) return out.status().Annotate(path);
  return out;
}

// Without memory for a hot side no hot side is measured, and no threads are reserved for it.
Result<placement::Machine> MeasureThis(const MachineOptions& o, const model::ModelFile& file,
                                       const std::string& model_hash) {
  load::ThisMachineOptions options{
      .threads = o.threads > 0 ? o.threads : base::UsableProcessors(), .hot = o.hot, .flash = true};
  ASSIGN_OR_RETURN(options.ops, load::ChooseOps(""));
  if (o.vram >= 0) options.hot.bytes = o.vram;
  if (o.hot.device == HotDevice::kCpu) return load::ThisMachine(file, model_hash, options);
  const auto gpu = device::Device::Open({.ops = kernels::CudaOps()});
  if (!gpu.ok() && o.hot.device == HotDevice::kCuda) return gpu.status().Annotate("--device cuda");
  options.device = gpu.ok() ? gpu->get() : nullptr;
  return load::ThisMachine(file, model_hash, options);
}

}  // namespace

void AddMachineOptions(const OptionSet& set, MachineOptions& o) {
  set.Add("--machine", o.machine,
          "Machine: a name from config/machines, or a file; this one if not given");
  set.Add("-t,--threads", IntValue{&o.threads, 0, 256},
          "Of this machine: kernel threads; 0 = all processors");
  set.Add("--hot-threads", IntValue{&o.hot.threads, 0, 255},
          "Of this machine: threads of a second partition of the CPU; 0 = half");
  set.Add("--device", Choice(o.hot.device, kHotDeviceNames),
          "Of this machine: the hot side, as in `run`")
      .ShowDefault();
  set.Add("--calibrate", o.hot.calibrate, "Measure this machine though it was measured before");
  set.Add("--vram,--hot-memory", BytesValue{&o.vram}, "What if: memory of the hot side (8GiB)");
  set.Add("--ram", BytesValue{&o.ram}, "What if: RAM that may be used (16GiB)");
  set.Add("--flash-mbps", DoubleValue{&o.flash_mbps, 0, 1e6},
          "What if: MB/s read from flash; reads/s change in proportion; 0 = no flash");
  set.Add("--sync-us", DoubleValue{&o.sync_us, 0, 1e6},
          "What if: microseconds of both sides waiting once");
}

Result<placement::Machine> FindMachine(const MachineOptions& o, const model::ModelFile& file,
                                       const std::string& model_hash) {
  ASSIGN_OR_RETURN(placement::Machine m,
                   o.machine.empty() ? MeasureThis(o, file, model_hash) : ReadMachine(o.machine));
  if (m.hot_homes && !file.config.experts.any() && !file.config.DeviceComputesLayers()) {
    base::LogWarning("layers of the family '", file.config.architecture->name,
                     "' are computed by the CPU: the plan leaves the GPU out");
    m.hot_bytes = 0;
    m.unified = m.hot_homes = false;
  }
  if (o.vram >= 0) m.hot_bytes = o.vram;
  if (o.ram >= 0) m.memory_bytes = o.ram;
  if (m.unified && o.vram < 0 && o.ram >= 0) m.hot_bytes = m.memory_bytes;
  if (m.unified && o.vram >= 0 && o.ram < 0) m.memory_bytes = m.hot_bytes;
  if (o.flash_mbps >= 0) {
    // A machine without flash is given equal speed for all reads.
    constexpr double kReadBytes = 8 << 10;
    const double bytes = o.flash_mbps * 1e6;
    m.flash_reads_per_s = m.flash_bytes_per_s > 0
                              ? m.flash_reads_per_s * bytes / m.flash_bytes_per_s
                              : bytes / kReadBytes;
    m.flash_bytes_per_s = bytes;
  }
  if (o.sync_us >= 0) m.sync_s = o.sync_us * 1e-6;
  return m;
}

}  // namespace thermocline::tools
