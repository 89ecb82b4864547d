// One allocation of a device shared out among many arrays: what is needed is said first, then
// allocated at once, so that a refusal names what the memory was for.
#pragma once

#include <string>
#include <vector>

#include "engine/device/buffers.h"
#include "engine/device/stream.h"

namespace thermocline::gpu {

// Pinned memory through which pieces go to the device. Thread-compatible.
class DeviceUploader {
 public:
  // Errors as device::MappedBuffer::Allocate.
  static Result<DeviceUploader> Create(device::DeviceStream& stream);

  // Returns when the bytes are there. Unavailable with the device's error.
  Status Copy(void* to, const void* from, std::size_t bytes);
  // Room for one piece; Send copies its first `bytes`.
  std::byte* piece() const { return memory_.host<std::byte>(); }
  Status Send(void* to, std::size_t bytes);
  static constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

 private:
  DeviceUploader(device::DeviceStream& stream, device::MappedBuffer memory)
      : stream_(&stream), memory_(std::move(memory)) {}

  device::DeviceStream* stream_;
  device::MappedBuffer memory_;
};

// Owns the allocation. The pointers it sets belong to the device, and hold until it ends.
class DeviceArena {
 public:
  // `name` is for the table of what memory is used for.
  explicit DeviceArena(std::string name) : name_(std::move(name)) {}
  DeviceArena(DeviceArena&&) = default;
  DeviceArena& operator=(DeviceArena&&) = default;

  // Room for `count` elements, 256-byte aligned; *where is set by Allocate. With `from`, Upload
  // copies them, else they are zeros. Requires: `where` and `from` stay until then.
  template <typename T>
  void Add(T** where, std::size_t count, const void* from = nullptr) {
    AddBytes(
        where,
        [](void* where_of, std::byte* data) {
          *static_cast<T**>(where_of) = reinterpret_cast<T*>(data);
        },
        count * sizeof(T), from);
  }
  std::size_t bytes() const { return bytes_; }
  // ResourceExhausted with a table of what the device's memory is used for.
  Status Allocate(device::Device& device);
  Status Upload(DeviceUploader& uploader, device::DeviceStream& stream);

 private:
  using Setter = void (*)(void* where, std::byte* data);
  struct Piece {
    void* where;
    Setter set;
    std::size_t offset, bytes;
    const void* from;
  };
  void AddBytes(void* where, Setter set, std::size_t bytes, const void* from);

  std::string name_;
  std::vector<Piece> pieces_;
  std::size_t bytes_ = 0;
  device::DeviceBuffer memory_;
};

}  // namespace thermocline::gpu
