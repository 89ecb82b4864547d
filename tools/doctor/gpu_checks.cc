#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "engine/base/strings.h"
#include "engine/device/device.h"
#include "kernels/device_ops.h"
#include "tools/doctor/checks.h"

namespace thermocline::tools {
namespace {

// Nodes that CUDA needs to start. Source: the list of deploy/systemd/jetson.conf (L4T r36), and
// NVIDIA's driver for PCs.
const std::vector<std::string>& NodesOf(bool jetson) {
  static const std::vector<std::string> kPc = {"dev/nvidiactl", "dev/nvidia0", "dev/nvidia-uvm"};
  static const std::vector<std::string> kOrin = {"dev/nvmap", "dev/nvhost-gpu",
                                                 "dev/nvhost-ctrl-gpu", "dev/nvgpu/igpu0/ctrl"};
  return jetson ? kOrin : kPc;
}

std::string ModelName(const MachineFiles& files) {
  return files.Read("proc/device-tree/model").value_or("");
}

}  // namespace

bool IsJetson(const MachineFiles& files) {
  return files.Exists("etc/nv_tegra_release") || files.Exists("dev/nvmap") ||
         ModelName(files).find("Jetson") != std::string::npos;
}

Finding CheckGpuNodes(const MachineFiles& files) {
  Finding out{.name = "GPU's device nodes", .seen = "", .advice = ""};
  const bool jetson = IsJetson(files);
  std::vector<std::string> missing, forbidden;
  for (const std::string& node : NodesOf(jetson)) {
    if (!files.Exists(node)) {
      missing.push_back(node);
    } else if (!files.CanUse(node)) {
      forbidden.push_back(node);
    }
  }
  const auto list = [](const std::vector<std::string>& nodes) {
    std::string text;
    for (const std::string& node : nodes) text += StrCat(text.empty() ? "/" : ", /", node);
    return text;
  };
  if (!jetson && missing.size() == NodesOf(jetson).size()) {
    out.verdict = Verdict::kNote;
    out.seen = "there is no NVIDIA GPU";
  } else if (!forbidden.empty()) {
    out.verdict = Verdict::kError;
    out.seen = StrCat("no permission for ", list(forbidden));
    out.advice =
        "usermod -aG video,render USER, and log in again; a service needs SupplementaryGroups= and "
        "DeviceAllow= (deploy/systemd)";
  } else if (!missing.empty()) {
    out.verdict = Verdict::kError;
    out.seen = StrCat(jetson ? StrCat(ModelName(files), ": ") : "", "missing ", list(missing));
    out.advice = jetson ? "is this a container without --runtime nvidia, or another release than "
                          "JetPack 6 (L4T r36)?"
                        : "nvidia-modprobe -u -c0 makes them; nvidia-persistenced keeps them";
  } else {
    out.seen = StrCat(jetson ? StrCat(ModelName(files), ": ") : "", list(NodesOf(jetson)));
  }
  return out;
}

Finding CheckGpu(const MachineFiles& files) {
  Finding out{.name = "GPU", .seen = "", .advice = ""};
  const bool there = CheckGpuNodes(files).verdict != Verdict::kNote;
  const auto device = device::Device::Open({.ops = kernels::CudaOps()});
  if (device.ok()) {
    out.seen = (*device)->Describe();
    if (const auto memory = (*device)->FreeMemory(); memory.ok())
      out.seen += StrCat(", ", base::HumanBytes(memory->free), " free");
    return out;
  }
  out.seen = device.status().message();
  out.verdict = there ? Verdict::kWarning : Verdict::kNote;
  out.advice = there ? "until then hot.device: auto computes on the CPU" : "";
  return out;
}

}  // namespace thermocline::tools
