// Handles of an accelerator's runtime, without its headers.
#pragma once

namespace thermocline::kernels {

using DeviceError = int;  // 0, or the runtime's code
struct Stream {
  void* handle = nullptr;
};
struct Event {
  void* handle = nullptr;
};
struct Graph {
  void* handle = nullptr;
};

}  // namespace thermocline::kernels
