#include "engine/gpu/device_arena.h"

#include <algorithm>
#include <cstring>

namespace thermocline::gpu {
namespace {

constexpr std::size_t kAlignment = 256;

}  // namespace

Result<DeviceUploader> DeviceUploader::Create(device::DeviceStream& stream) {
  ASSIGN_OR_RETURN(auto memory, device::MappedBuffer::Allocate(stream.device(), "copies of weights",
                                                               kPieceBytes));
  return DeviceUploader(stream, std::move(memory));
}

Status DeviceUploader::Copy(void* to, const void* from, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kPieceBytes) {
    const std::size_t piece_bytes = std::min(kPieceBytes, bytes - at);
    std::memcpy(piece(), static_cast<const std::byte*>(from) + at, piece_bytes);
    RETURN_IF_ERROR(Send(static_cast<std::byte*>(to) + at, piece_bytes));
  }
  return OkStatus();
}

Status DeviceUploader::Send(void* to, std::size_t bytes) {
  if (bytes == 0) return OkStatus();
  RETURN_IF_ERROR(stream_->CopyToDevice(to, piece(), bytes));
  return stream_->Synchronize();
}

void DeviceArena::AddBytes(void* where, Setter set, std::size_t bytes, const void* from) {
  pieces_.push_back({where, set, bytes_, bytes, from});
  bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Status DeviceArena::Allocate(device::Device& device) {
  ASSIGN_OR_RETURN(memory_, device::DeviceBuffer::Allocate(device, name_, bytes_));
  for (const Piece& piece : pieces_) {
    std::byte* data = piece.bytes > 0 ? memory_.as<std::byte>() + piece.offset : nullptr;
    piece.set(piece.where, data);
  }
  return OkStatus();
}

Status DeviceArena::Upload(DeviceUploader& uploader, device::DeviceStream& stream) {
  if (bytes_ > 0) RETURN_IF_ERROR(stream.Fill(memory_.data(), 0, bytes_));
  for (const Piece& piece : pieces_) {
    if (piece.from == nullptr) continue;
    RETURN_IF_ERROR(uploader.Copy(memory_.as<std::byte>() + piece.offset, piece.from, piece.bytes));
  }
  return stream.Synchronize();
}

}  // namespace thermocline::gpu
