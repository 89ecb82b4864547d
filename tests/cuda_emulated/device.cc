// The emulated device: its properties, its memory, its errors.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "tests/cuda_emulated/cuda_runtime.h"
#include "tests/cuda_emulated/state.h"

namespace cuda_emulated {
namespace {

struct Block {
  std::size_t bytes = 0;
  std::vector<std::uint8_t> written;  // for device memory only
};
using Blocks = std::map<void*, Block>;

struct State {
  std::mutex mutex;
  Machine machine;
  Fault fault;
  int calls = 0;
  Blocks device, mapped;
  std::size_t device_bytes = 0, mapped_bytes = 0;
};
State& The() {
  static State state;
  return state;
}
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t Allocate(Blocks& blocks, std::size_t& total, std::size_t limit, std::size_t bytes,
                     void** out) {
  *out = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (total + bytes > limit) return Failed(cudaErrorMemoryAllocation);
  // Aligned as cudaMalloc's memory, and not rounded up, so that AddressSanitizer detects overruns.
  void* memory = nullptr;
  if (posix_memalign(&memory, 256, bytes) != 0) return Failed(cudaErrorMemoryAllocation);
  std::memset(memory, 0xCD, bytes);
  blocks[memory].bytes = bytes;
  total += bytes;
  *out = memory;
  return cudaSuccess;
}

cudaError_t Release(Blocks& blocks, std::size_t& total, void* memory) {
  if (memory == nullptr) return cudaSuccess;
  const auto found = blocks.find(memory);
  if (found == blocks.end()) return Failed(cudaErrorInvalidValue);
  total -= found->second.bytes;
  blocks.erase(found);
  std::free(memory);
  return cudaSuccess;
}

void ReleaseAll(Blocks& blocks, std::size_t& total) {
  for (const auto& [memory, block] : blocks) std::free(memory);
  blocks.clear();
  total = 0;
}

}  // namespace

namespace {

// The written flags of [at, at + bytes), if that is device memory.
std::uint8_t* WrittenOf(const void* at, std::size_t bytes) {
  Blocks& blocks = The().device;
  auto after = blocks.upper_bound(const_cast<void*>(at));
  if (after == blocks.begin()) return nullptr;
  auto& [begin, block] = *--after;
  const auto offset =
      static_cast<std::size_t>(static_cast<const char*>(at) - static_cast<char*>(begin));
  if (offset + bytes > block.bytes) return nullptr;
  if (block.written.empty()) block.written.resize(block.bytes);
  return block.written.data() + offset;
}

}  // namespace

void Copy(void* to, const void* from, std::size_t bytes) {
  std::memmove(to, from, bytes);
  const std::lock_guard lock(The().mutex);
  std::uint8_t* const written = WrittenOf(to, bytes);
  if (written == nullptr) return;
  if (const std::uint8_t* source = WrittenOf(from, bytes))
    std::memmove(written, source, bytes);
  else
    std::memset(written, 1, bytes);
}
void Set(void* to, int byte, std::size_t bytes) {
  std::memset(to, byte, bytes);
  const std::lock_guard lock(The().mutex);
  if (std::uint8_t* const written = WrittenOf(to, bytes)) std::memset(written, 1, bytes);
}

std::vector<Memory> AllMemory() {
  const std::lock_guard lock(The().mutex);
  std::map<void*, Memory> all;
  const auto add = [&](Blocks& blocks, bool device) {
    for (auto& [memory, block] : blocks) {
      const auto begin = reinterpret_cast<std::uintptr_t>(memory);
      all[memory] = {begin, begin + block.bytes, device ? WrittenOf(memory, block.bytes) : nullptr};
    }
  };
  add(The().device, true);
  add(The().mapped, false);
  std::vector<Memory> out;
  for (const auto& [memory, one] : all) out.push_back(one);
  return out;
}

cudaError_t Failed(cudaError_t error) { return last_error = error; }

cudaError_t NextCall() {
  State& state = The();
  const std::lock_guard lock(state.mutex);
  ++state.calls;
  if (state.fault.error == cudaSuccess) return cudaSuccess;
  if (state.fault.after-- > 0) return cudaSuccess;
  const cudaError_t error = state.fault.error;
  if (state.fault.sticky)
    state.fault.after = 0;
  else
    state.fault.error = cudaSuccess;
  return Failed(error);
}

std::size_t LaunchesMax() {
  const std::lock_guard lock(The().mutex);
  return The().machine.launches_max;
}

void Inject(const Fault& fault) {
  const std::lock_guard lock(The().mutex);
  The().fault = fault;
}
int Calls() {
  const std::lock_guard lock(The().mutex);
  return The().calls;
}
void SetMachine(const Machine& machine) {
  const std::lock_guard lock(The().mutex);
  The().machine = machine;
}
std::size_t Allocated() {
  const std::lock_guard lock(The().mutex);
  return The().device_bytes + The().mapped_bytes;
}

}  // namespace cuda_emulated

using cuda_emulated::Failed;
using cuda_emulated::NextCall;
using cuda_emulated::The;

#define RETURN_IF_FAULTY() \
  if (const cudaError_t fault = NextCall(); fault != cudaSuccess) return fault

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorNoKernelImageForDevice:
      return "cudaErrorNoKernelImageForDevice";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    default:
      return "cudaError";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorNoKernelImageForDevice:
      return "no kernel image is available for execution on the device";
    case cudaErrorOperatingSystem:
      return "OS call failed or operation not supported on this OS";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    default:
      return "unrecognized error code";
  }
}
cudaError_t cudaPeekAtLastError() { return cuda_emulated::last_error; }
cudaError_t cudaGetLastError() { return std::exchange(cuda_emulated::last_error, cudaSuccess); }

cudaError_t cudaGetDeviceCount(int* count) {
  RETURN_IF_FAULTY();
  *count = The().machine.devices;
  if (The().machine.count_error != cudaSuccess) return Failed(The().machine.count_error);
  return *count > 0 ? cudaSuccess : Failed(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int device) {
  RETURN_IF_FAULTY();
  return device >= 0 && device < The().machine.devices ? cudaSuccess
                                                       : Failed(cudaErrorInvalidDevice);
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return NextCall();
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device) {
  RETURN_IF_FAULTY();
  const cuda_emulated::Machine& machine = The().machine;
  if (device < 0 || device >= machine.devices) return Failed(cudaErrorInvalidDevice);
  *out = {};
  std::snprintf(out->name, sizeof out->name, "Emulated device");
  out->totalGlobalMem = machine.memory_bytes;
  out->sharedMemPerBlock = 48 << 10;
  out->major = machine.major;
  out->minor = machine.minor;
  out->multiProcessorCount = 2;
  out->integrated = machine.unified ? 1 : 0;
  out->canMapHostMemory = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, device);
  if (error != cudaSuccess) return error;
  *value = attribute == cudaDevAttrIntegrated               ? properties.integrated
           : attribute == cudaDevAttrComputeCapabilityMajor ? properties.major
           : attribute == cudaDevAttrComputeCapabilityMinor ? properties.minor
                                                            : properties.multiProcessorCount;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 12020;
  return NextCall();
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 12020;
  return NextCall();
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  RETURN_IF_FAULTY();
  const std::lock_guard lock(The().mutex);
  *total = The().machine.memory_bytes;
  *free = *total - std::min(*total, The().device_bytes);
  return cudaSuccess;
}
cudaError_t cudaDeviceReset() {
  cuda_emulated::DrainAll();
  const std::lock_guard lock(The().mutex);
  cuda_emulated::ReleaseAll(The().device, The().device_bytes);
  cuda_emulated::ReleaseAll(The().mapped, The().mapped_bytes);
  The().fault = {};
  cuda_emulated::last_error = cudaSuccess;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** out, std::size_t bytes) {
  RETURN_IF_FAULTY();
  const std::lock_guard lock(The().mutex);
  return cuda_emulated::Allocate(The().device, The().device_bytes, The().machine.memory_bytes,
                                 bytes, out);
}
cudaError_t cudaFree(void* memory) {
  cuda_emulated::DrainAll();
  {
    const std::lock_guard lock(The().mutex);
    const cudaError_t error = cuda_emulated::Release(The().device, The().device_bytes, memory);
    if (error != cudaSuccess) return error;
  }
  return NextCall();
}
cudaError_t cudaHostAlloc(void** out, std::size_t bytes, unsigned) {
  RETURN_IF_FAULTY();
  const std::lock_guard lock(The().mutex);
  return cuda_emulated::Allocate(The().mapped, The().mapped_bytes, ~std::size_t{0}, bytes, out);
}
cudaError_t cudaFreeHost(void* memory) {
  cuda_emulated::DrainAll();
  {
    const std::lock_guard lock(The().mutex);
    const cudaError_t error = cuda_emulated::Release(The().mapped, The().mapped_bytes, memory);
    if (error != cudaSuccess) return error;
  }
  return NextCall();
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return NextCall();
}
