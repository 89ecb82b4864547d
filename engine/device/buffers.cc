#include "engine/device/buffers.h"

#include <cstring>
#include <tuple>
#include <utility>

namespace thermocline::device {
namespace {

Status AllocationError(const Device& device, kernels::DeviceError error, const std::string& name,
                       std::size_t bytes, bool pinned) {
  if (device.runtime().trouble(error) == kernels::DeviceTrouble::kOutOfMemory)
    return device.OutOfMemory(name, bytes, pinned);
  return device.Check(error, StrCat("allocating ", bytes, " bytes for ", name));
}

}  // namespace

Result<DeviceBuffer> DeviceBuffer::Allocate(Device& device, std::string name, std::size_t bytes) {
  DeviceBuffer buffer;
  if (bytes == 0) return buffer;
  const kernels::DeviceError error = device.runtime().allocate(bytes, &buffer.data_);
  if (error != 0) return AllocationError(device, error, name, bytes, false);
  device.Track(name, bytes, false);
  buffer.device_ = &device;
  buffer.name_ = std::move(name);
  buffer.bytes_ = bytes;
  buffer.generation_ = device.generation();
  return buffer;
}

DeviceBuffer::~DeviceBuffer() {
  if (device_ == nullptr || generation_ != device_->generation()) return;
  device_->Untrack(name_, bytes_, false);
  std::ignore = device_->runtime().release(data_);
}

void DeviceBuffer::Swap(DeviceBuffer& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(name_, other.name_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(generation_, other.generation_);
}

Result<MappedBuffer> MappedBuffer::Allocate(Device& device, std::string name, std::size_t bytes) {
  MappedBuffer buffer;
  if (bytes == 0) return buffer;
  const kernels::DeviceError error =
      device.runtime().allocate_mapped(bytes, &buffer.host_, &buffer.on_device_);
  if (error != 0) return AllocationError(device, error, name, bytes, true);
  std::memset(buffer.host_, 0, bytes);
  device.Track(name, bytes, true);
  buffer.device_ = &device;
  buffer.name_ = std::move(name);
  buffer.bytes_ = bytes;
  buffer.generation_ = device.generation();
  return buffer;
}

MappedBuffer::~MappedBuffer() {
  if (device_ == nullptr || generation_ != device_->generation()) return;
  device_->Untrack(name_, bytes_, true);
  std::ignore = device_->runtime().release_mapped(host_);
}

void MappedBuffer::Swap(MappedBuffer& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(name_, other.name_);
  std::swap(host_, other.host_);
  std::swap(on_device_, other.on_device_);
  std::swap(bytes_, other.bytes_);
  std::swap(generation_, other.generation_);
}

}  // namespace thermocline::device
