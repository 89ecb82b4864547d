// One allocation of a device divided among many arrays: sizes are registered first, then allocated
// at once, so that an allocation error can list the uses of the memory.
#pragma once

#include <string>
#include <vector>

#include "engine/device/buffers.h"
#include "engine/device/stream.h"

namespace thermocline::gpu {

// Pinned memory through which data is copied to the device in pieces. Thread-compatible.
class DeviceUploader {
 public:
  // Errors as device::MappedBuffer::Allocate.
  static Result<DeviceUploader> Create(device::DeviceStream& stream);

  // Returns when the copy is complete. Unavailable with the device's error.
  Status Copy(void* to, const void* from, std::size_t bytes);
  // The buffer of one piece; Send copies its first `bytes`.
  std::byte* piece() const { return memory_.host<std::byte>(); }
  Status Send(void* to, std::size_t bytes);
  static constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

 private:
  DeviceUploader(device::DeviceStream& stream, device::MappedBuffer memory)
      : stream_(&stream), memory_(std::move(memory)) {}

  device::DeviceStream* stream_;
  device::MappedBuffer memory_;
};

// Owns the allocation. The pointers it sets are device pointers, valid during its lifetime.
class DeviceArena {
 public:
  // `name` appears in the table of memory uses.
  explicit DeviceArena(std::string name) : name_(std::move(name)) {}
  DeviceArena(DeviceArena&&) = default;
  DeviceArena& operator=(DeviceArena&&) = default;

  // Registers `count` elements, 256-byte aligned; Allocate sets *where. Upload copies the elements
  // from `from`, or sets zeros if that is null. Requires: `where` and `from` stay valid until then.
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
  // ResourceExhausted with a table of the device's memory uses.
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
