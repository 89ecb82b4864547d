// The calls of the CUDA runtime that device_ops.h lists, and no others.
//
// Plain device memory and mapped host memory only: the driver moves managed memory at times of its
// own, and a machine whose memory is shared does not need it.
#include <cuda_runtime.h>

#include <cstdio>

#include "kernels/cuda/sparse_ops.h"
#include "kernels/cuda/tables.h"

#ifndef THERMOCLINE_CUDA_ARCHITECTURES
#define THERMOCLINE_CUDA_ARCHITECTURES "any"
#endif
#define THERMOCLINE_TEXT_OF(name) #name
#define THERMOCLINE_TEXT(name) THERMOCLINE_TEXT_OF(name)

namespace thermocline::kernels::THERMOCLINE_CUDA {
namespace {

// Clears the runtime's sticky copy of the error, because the caller gets it: the next launch may
// belong to unrelated work (an audit fails, the next token does not).
DeviceError Code(cudaError_t error) {
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
  return error;
}
cudaStream_t Of(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }
cudaEvent_t Of(Event event) { return static_cast<cudaEvent_t>(event.handle); }

const char* ErrorText(DeviceError error) {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

DeviceTrouble Trouble(DeviceError error) {
  switch (static_cast<cudaError_t>(error)) {
    case cudaSuccess:
      return DeviceTrouble::kNone;
    case cudaErrorInsufficientDriver:
      return DeviceTrouble::kNoDriver;
    case cudaErrorNoDevice:
      return DeviceTrouble::kNoDevice;
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
      return DeviceTrouble::kNotBuilt;
    case cudaErrorMemoryAllocation:
      return DeviceTrouble::kOutOfMemory;
    // The runtime's manual says of the following: "the process must be terminated and relaunched".
    case cudaErrorECCUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
      return DeviceTrouble::kProcessLost;
    default:
      return DeviceTrouble::kOther;
  }
}

DeviceError Count(int* devices) { return Code(cudaGetDeviceCount(devices)); }

DeviceError Use(int device) {
  if (const cudaError_t error = cudaSetDevice(device); error != cudaSuccess) return Code(error);
  return Code(cudaFree(nullptr));  // creates the context
}

DeviceError Properties(int device, DeviceProperties* out) {
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, device); error != cudaSuccess)
    return Code(error);
  *out = {};
  std::snprintf(out->name, sizeof out->name, "%s", properties.name);
  out->major = properties.major;
  out->minor = properties.minor;
  out->multiprocessors = properties.multiProcessorCount;
  out->memory_bytes = properties.totalGlobalMem;
  out->unified = properties.integrated != 0;
  if (const cudaError_t error = cudaDriverGetVersion(&out->driver); error != cudaSuccess)
    return Code(error);
  return Code(cudaRuntimeGetVersion(&out->runtime));
}

DeviceError Memory(std::size_t* free, std::size_t* total) {
  return Code(cudaMemGetInfo(free, total));
}

__global__ void Nothing() {}

DeviceError Probe() {
  if (const DeviceError error = Launch(Nothing, dim3(1), dim3(1), 0, Stream{}); error != 0)
    return error;
  return Code(cudaStreamSynchronize(nullptr));
}

__global__ void __launch_bounds__(512)
    SumWordsKernel(const uint4* from, std::size_t count, std::uint32_t* sum) {
  std::uint32_t words = 0;
  const std::size_t step = StartOf(gridDim.x, blockDim.x);
#pragma unroll 4
  for (std::size_t i = StartOf(blockIdx.x, blockDim.x) + threadIdx.x; i < count; i += step) {
    const uint4 four = __ldg(from + i);
    words += four.x + four.y + four.z + four.w;
  }
  words = __reduce_add_sync(0xFFFFFFFFU, words);
  if (threadIdx.x % 32 == 0) atomicAdd(sum, words);
}

DeviceError SumWords(const void* from, std::size_t bytes, std::uint32_t* sum, Stream stream) {
  const int blocks = 4 * Multiprocessors();
  return Launch(SumWordsKernel, dim3(blocks), dim3(512), 0, stream, static_cast<const uint4*>(from),
                bytes / 16, sum);
}

DeviceError Allocate(std::size_t bytes, void** out) { return Code(cudaMalloc(out, bytes)); }

DeviceError Release(void* memory) { return Code(cudaFree(memory)); }

DeviceError AllocateMapped(std::size_t bytes, void** host, void** device) {
  const cudaError_t error = cudaHostAlloc(host, bytes, cudaHostAllocMapped);
  if (error != cudaSuccess) return Code(error);
  return Code(cudaHostGetDevicePointer(device, *host, 0));
}

DeviceError ReleaseMapped(void* host) { return Code(cudaFreeHost(host)); }

DeviceError StreamCreate(Stream* out) {
  cudaStream_t stream = nullptr;
  const cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  out->handle = stream;
  return Code(error);
}

DeviceError StreamDestroy(Stream stream) { return Code(cudaStreamDestroy(Of(stream))); }
DeviceError StreamSynchronize(Stream stream) { return Code(cudaStreamSynchronize(Of(stream))); }

DeviceError CopyToDevice(void* to, const void* from_host, std::size_t bytes, Stream stream) {
  return Code(cudaMemcpyAsync(to, from_host, bytes, cudaMemcpyHostToDevice, Of(stream)));
}
DeviceError CopyToHost(void* to_host, const void* from, std::size_t bytes, Stream stream) {
  return Code(cudaMemcpyAsync(to_host, from, bytes, cudaMemcpyDeviceToHost, Of(stream)));
}
DeviceError CopyOnDevice(void* to, const void* from, std::size_t bytes, Stream stream) {
  return Code(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, Of(stream)));
}
DeviceError Fill(void* to, int byte, std::size_t bytes, Stream stream) {
  return Code(cudaMemsetAsync(to, byte, bytes, Of(stream)));
}

DeviceError EventCreate(Event* out) {
  cudaEvent_t event = nullptr;
  const cudaError_t error = cudaEventCreate(&event);
  out->handle = event;
  return Code(error);
}
DeviceError EventDestroy(Event event) { return Code(cudaEventDestroy(Of(event))); }
DeviceError EventRecord(Event event, Stream stream) {
  return Code(cudaEventRecord(Of(event), Of(stream)));
}
DeviceError EventWait(Event event) { return Code(cudaEventSynchronize(Of(event))); }
DeviceError EventElapsed(Event begin, Event end, float* ms) {
  return Code(cudaEventElapsedTime(ms, Of(begin), Of(end)));
}

DeviceError GraphBegin(Stream stream) {
  // Other threads may go on allocating and copying while this one records.
  return Code(cudaStreamBeginCapture(Of(stream), cudaStreamCaptureModeThreadLocal));
}

DeviceError GraphEnd(Stream stream, Graph* out) {
  cudaGraph_t recorded = nullptr;
  if (const cudaError_t error = cudaStreamEndCapture(Of(stream), &recorded); error != cudaSuccess)
    return Code(error);
  cudaGraphExec_t graph = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&graph, recorded, 0);
  static_cast<void>(cudaGraphDestroy(recorded));
  out->handle = graph;
  return Code(error);
}

DeviceError GraphLaunch(Graph graph, Stream stream) {
  return Code(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph.handle), Of(stream)));
}
DeviceError GraphDestroy(Graph graph) {
  return Code(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph.handle)));
}

DeviceError Reset() { return Code(cudaDeviceReset()); }

}  // namespace

DeviceRuntime RuntimeTable() {
  DeviceRuntime table = {};
  table.name = THERMOCLINE_TEXT(THERMOCLINE_CUDA);
  table.architectures = THERMOCLINE_CUDA_ARCHITECTURES;
  table.error_text = ErrorText;
  table.trouble = Trouble;
  table.count = Count;
  table.use = Use;
  table.properties = Properties;
  table.memory = Memory;
  table.probe = Probe;
  table.allocate = Allocate;
  table.release = Release;
  table.allocate_mapped = AllocateMapped;
  table.release_mapped = ReleaseMapped;
  table.stream_create = StreamCreate;
  table.stream_destroy = StreamDestroy;
  table.stream_synchronize = StreamSynchronize;
  table.copy_to_device = CopyToDevice;
  table.copy_to_host = CopyToHost;
  table.copy_on_device = CopyOnDevice;
  table.fill = Fill;
  table.event_create = EventCreate;
  table.event_destroy = EventDestroy;
  table.event_record = EventRecord;
  table.event_wait = EventWait;
  table.event_elapsed = EventElapsed;
  table.graph_begin = GraphBegin;
  table.graph_end = GraphEnd;
  table.graph_launch = GraphLaunch;
  table.graph_destroy = GraphDestroy;
  table.sum_words = SumWords;
  table.reset = Reset;
  return table;
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
