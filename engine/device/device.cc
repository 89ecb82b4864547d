#include "engine/device/device.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace thermocline::device {
namespace {

using kernels::DeviceTrouble;

std::string Version(int version) { return StrCat(version / 1000, ".", version % 1000 / 10); }

std::string Mib(std::size_t bytes) { return StrCat((bytes + (1 << 20) - 1) >> 20, " MiB"); }

// The first node of a GPU in `folder` that this process may not open; "" if there is none.
std::string ForbiddenNode(const char* folder) {
  static constexpr const char* kPrefixes[] = {"nvidia", "nvhost-gpu", "nvhost-ctrl-gpu", "nvmap"};
  DIR* dir = opendir(folder);
  if (dir == nullptr) return "";
  std::string worst;
  while (const dirent* entry = readdir(dir)) {
    const std::string path = StrCat(folder, "/", entry->d_name);
    const bool ours = std::any_of(std::begin(kPrefixes), std::end(kPrefixes), [&](const char* p) {
      return std::strncmp(entry->d_name, p, std::strlen(p)) == 0;
    });
    if (!ours || entry->d_type == DT_DIR || access(path.c_str(), R_OK | W_OK) == 0) continue;
    if (worst.empty() || path < worst) worst = path;
  }
  closedir(dir);
  return worst;
}

// The reason why the runtime cannot count devices, or finds none.
Status Unusable(const Device::Params& p, kernels::DeviceError error) {
  const kernels::DeviceRuntime& r = p.ops->runtime;
  const std::string text = error != 0 ? r.error_text(error) : "no device";
  if (const std::string node = ForbiddenNode(p.nodes); !node.empty()) {
    return base::FailedPrecondition("no permission to use ", node, " (", text,
                                    "): add this user to the group that owns it (video or render), "
                                    "or give the service DeviceAllow= and DevicePolicy= for it");
  }
  switch (r.trouble(error)) {
    case DeviceTrouble::kNoDriver:
      return base::FailedPrecondition(
          "the NVIDIA driver is missing or older than this program's CUDA runtime (", text,
          "): install or update the driver; nvidia-smi shows its version");
    case DeviceTrouble::kNone:
    case DeviceTrouble::kNoDevice:
      return base::NotFound("the driver finds no GPU (", text,
                            "): check nvidia-smi, CUDA_VISIBLE_DEVICES and, in a container, that "
                            "the GPU is passed in");
    default:
      return base::Unavailable("the GPU cannot be used: ", text, " (error ", error,
                               "): see the kernel's log (dmesg)");
  }
}

Status NotBuilt(const kernels::DeviceRuntime& r, const kernels::DeviceProperties& p) {
  return base::Unimplemented("this program's kernels are built for compute capabilities ",
                             r.architectures, ", not for ", p.name, ", which has ", p.major, ".",
                             p.minor, ": build with -DCMAKE_CUDA_ARCHITECTURES=", p.major, p.minor);
}

}  // namespace

Result<std::unique_ptr<Device>> Device::Open(const Params& p) {
  if (p.ops == nullptr) {
    return base::Unimplemented(
        "this program was built without CUDA: install the CUDA Toolkit (12.2 or newer) and build "
        "with -DTHERMOCLINE_CUDA=ON");
  }
  const kernels::DeviceRuntime& r = p.ops->runtime;
  // Loads all kernels with the context: loading one at its first launch may wait for the device,
  // which may be waiting for the CPU's part of a layer.
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  int count = 0;
  if (const kernels::DeviceError error = r.count(&count); error != 0 || count == 0)
    return Unusable(p, error);
  if (p.index < 0 || p.index >= count) {
    return base::NotFound("there is no GPU ", p.index, ": the driver finds ", count,
                          ", counted from 0");
  }
  std::unique_ptr<Device> device(new Device(*p.ops, p.index));
  RETURN_IF_ERROR(
      device->Check(r.properties(p.index, &device->properties_), "asking what the GPU is"));
  if (const kernels::DeviceError error = r.use(p.index); error != 0) {
    if (r.trouble(error) == DeviceTrouble::kOutOfMemory) {
      return base::ResourceExhausted("no memory is left on ", device->properties_.name,
                                     " for a context: end other programs that use it (nvidia-smi)");
    }
    return Unusable(p, error);
  }
  if (const kernels::DeviceError error = r.probe(); error != 0) {
    if (r.trouble(error) == DeviceTrouble::kNotBuilt) return NotBuilt(r, device->properties_);
    return Unusable(p, error);
  }
  return device;
}

std::string Device::Describe() const {
  return StrCat(properties_.name, ", compute capability ", properties_.major, ".",
                properties_.minor, ", driver for CUDA ", Version(properties_.driver));
}

Status Device::Use() const { return Check(runtime().use(index_), "making the GPU this thread's"); }

Result<Device::Memory> Device::FreeMemory() const {
  Memory memory{};
  RETURN_IF_ERROR(Check(runtime().memory(&memory.free, &memory.total), "asking for free memory"));
  return memory;
}

Status Device::Check(kernels::DeviceError error, std::string_view what) const {
  if (error == 0) return OkStatus();
  if (runtime().trouble(error) == DeviceTrouble::kProcessLost) process_lost_ = true;
  return base::Unavailable(properties_.name, ": ", what, ": ", runtime().error_text(error),
                           " (error ", error, ")");
}

Status Device::Reset() {
  ++generation_;
  {
    const base::MutexLock lock(mutex_);
    held_.clear();
  }
  RETURN_IF_ERROR(Check(runtime().reset(), "giving up the context"));
  return Use();
}

void Device::Track(std::string_view name, std::size_t bytes, bool pinned) {
  const base::MutexLock lock(mutex_);
  for (Held& held : held_) {
    if (held.name != name || held.pinned != pinned) continue;
    held.bytes += bytes;
    ++held.count;
    return;
  }
  held_.push_back({std::string(name), bytes, pinned, 1});
}

void Device::Untrack(std::string_view name, std::size_t bytes, bool pinned) {
  const base::MutexLock lock(mutex_);
  for (auto it = held_.begin(); it != held_.end(); ++it) {
    if (it->name != name || it->pinned != pinned) continue;
    it->bytes -= bytes;
    if (--it->count == 0) held_.erase(it);
    return;
  }
}

Status Device::OutOfMemory(std::string_view name, std::size_t bytes, bool pinned) const {
  Memory memory{};
  const bool known = runtime().memory(&memory.free, &memory.total) == 0;
  std::string table;
  {
    const base::MutexLock lock(mutex_);
    for (const Held& held : held_) {
      table += StrCat("\n  held       ", Mib(held.bytes), "  ", held.name,
                      held.count > 1 ? StrCat(" (", held.count, " pieces)") : "",
                      held.pinned ? " (pinned memory of the host)" : "");
    }
  }
  table += StrCat("\n  asked for  ", Mib(bytes), "  ", name);
  if (known)
    table += StrCat("\n  free       ", Mib(memory.free), " of ", Mib(memory.total), " on ",
                    properties_.name);
  return base::ResourceExhausted(
      "no room for ", name, pinned ? " in pinned memory of the host" : " in GPU memory",
      ": give the GPU a smaller budget, a shorter context or end other programs that use it",
      table);
}

}  // namespace thermocline::device
