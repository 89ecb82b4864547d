// The ops on an accelerator, and the few calls of its runtime that the engine needs, as tables of
// functions, so that code that holds a table needs neither the vendor's headers nor an #ifdef.
//
// Pointers are to the device's memory unless a comment says otherwise. Every op and copy is
// asynchronous on its stream, in order, and allocates nothing. Weights and the KV cache lie on the
// device byte for byte as in the host's memory (kernels/types.h, rows.h, attention.h). Ops give the
// bits of the CPU's tables unless their header states a tolerance; none adds floats in an order
// that depends on timing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device_dense.h"
#include "kernels/device_sparse.h"
#include "kernels/device_types.h"

namespace thermocline::kernels {

struct DeviceProperties {
  char name[256];
  int major, minor;  // compute capability
  int multiprocessors;
  std::size_t memory_bytes;
  bool unified;         // shares its memory with the processor
  int driver, runtime;  // versions, 1000 major + 10 minor
};

// Errors of the runtime that the engine treats specially.
enum class DeviceTrouble : std::uint8_t {
  kNone,         // not an error
  kNoDriver,     // none is installed, or an older one than the runtime needs
  kNoDevice,     // the driver sees none
  kNotBuilt,     // this build's kernels do not run on the device
  kOutOfMemory,  // of the device, or of pinned host memory
  kProcessLost,  // the process cannot use the runtime again, even after a reset
  kOther
};

// Calls of the runtime. All return 0 or an error whose text is error_text(error).
struct DeviceRuntime {
  const char* name;           // "cuda", "emulated"
  const char* architectures;  // the kernels were built for, for messages
  const char* (*error_text)(DeviceError error);
  DeviceTrouble (*trouble)(DeviceError error);
  DeviceError (*count)(int* devices);
  // Selects `device` for the calling thread, and creates its context.
  DeviceError (*use)(int device);
  DeviceError (*properties)(int device, DeviceProperties* out);
  DeviceError (*memory)(std::size_t* free, std::size_t* total);
  // Checks that the kernels were built for the device: runs an empty one.
  DeviceError (*probe)();
  DeviceError (*allocate)(std::size_t bytes, void** out);
  DeviceError (*release)(void* memory);
  // Host memory that both sides see: pinned and mapped.
  DeviceError (*allocate_mapped)(std::size_t bytes, void** host, void** device);
  DeviceError (*release_mapped)(void* host);
  DeviceError (*stream_create)(Stream* out);
  DeviceError (*stream_destroy)(Stream stream);
  DeviceError (*stream_synchronize)(Stream stream);
  DeviceError (*copy_to_device)(void* to, const void* from_host, std::size_t bytes, Stream stream);
  DeviceError (*copy_to_host)(void* to_host, const void* from, std::size_t bytes, Stream stream);
  DeviceError (*copy_on_device)(void* to, const void* from, std::size_t bytes, Stream stream);
  DeviceError (*fill)(void* to, int byte, std::size_t bytes, Stream stream);
  DeviceError (*event_create)(Event* out);
  DeviceError (*event_destroy)(Event event);
  DeviceError (*event_record)(Event event, Stream stream);
  DeviceError (*event_wait)(Event event);  // the caller waits
  DeviceError (*event_elapsed)(Event begin, Event end, float* ms);
  // Calls on the stream between begin and end become a graph instead of being run.
  DeviceError (*graph_begin)(Stream stream);
  DeviceError (*graph_end)(Stream stream, Graph* out);
  DeviceError (*graph_launch)(Graph graph, Stream stream);
  DeviceError (*graph_destroy)(Graph graph);
  // *sum += all 32-bit words of `from`: a measure of the read bandwidth. Requires: bytes a multiple
  // of 16, `from` 16-byte aligned.
  DeviceError (*sum_words)(const void* from, std::size_t bytes, std::uint32_t* sum, Stream stream);
  // Destroys the context and all its allocations, after an error that sticks.
  DeviceError (*reset)();
};

struct DeviceOps {
  DeviceRuntime runtime;
  DenseOps dense;
  SparseOps sparse;
};

// The CUDA kernels; nullptr if this build has none.
const DeviceOps* CudaOps();

}  // namespace thermocline::kernels
