// Device memory, and host memory that both sides can access.
//
// Both are freed by their destructors, unless the device was reset since. They borrow the Device.
#pragma once

#include <cstddef>
#include <string>

#include "engine/device/device.h"

namespace thermocline::device {

// Movable; empty after being moved from. Not initialised: Fill or copy before reading.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  // `name` appears in the table of memory uses. With 0 bytes the buffer is empty. ResourceExhausted
  // with that table; Unavailable for other errors.
  static Result<DeviceBuffer> Allocate(Device& device, std::string name, std::size_t bytes);
  DeviceBuffer(DeviceBuffer&& other) noexcept { Swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~DeviceBuffer();

  // On the device.
  void* data() const { return data_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  void Swap(DeviceBuffer& other) noexcept;

  Device* device_ = nullptr;
  std::string name_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  int generation_ = 0;
};

// Pinned host memory, mapped into the device's address space; initially zeros. For hand-offs of a
// few kilobytes and as the source of fast copies, not for weights that kernels read.
class MappedBuffer {
 public:
  MappedBuffer() = default;
  // As DeviceBuffer::Allocate.
  static Result<MappedBuffer> Allocate(Device& device, std::string name, std::size_t bytes);
  MappedBuffer(MappedBuffer&& other) noexcept { Swap(other); }
  MappedBuffer& operator=(MappedBuffer&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~MappedBuffer();

  template <typename T>
  T* host() const {
    return static_cast<T*>(host_);
  }
  // The same bytes at the device's address.
  template <typename T>
  T* on_device() const {
    return static_cast<T*>(on_device_);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  void Swap(MappedBuffer& other) noexcept;

  Device* device_ = nullptr;
  std::string name_;
  void* host_ = nullptr;
  void* on_device_ = nullptr;
  std::size_t bytes_ = 0;
  int generation_ = 0;
};

}  // namespace thermocline::device
