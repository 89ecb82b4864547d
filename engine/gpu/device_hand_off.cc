#include "engine/gpu/device_hand_off.h"

#include <sched.h>

#include <chrono>

namespace thermocline::gpu {
namespace {

constexpr std::size_t kLine = 128;
// Polls of a flag by the device before it gives up: minutes over a bus.
constexpr std::uint64_t kSpinsMax = 1'000'000'000;
// A block of threads copies this much in about the time that the copy engine takes to start.
constexpr std::size_t kPublishBytesMax = std::size_t{64} << 10;
// The host polls often for a while, then yields between polls, and after this time checks for
// errors.
constexpr int kPauses = 20000;
constexpr std::chrono::seconds kAskAfter{1}, kGiveUpAfter{60};
constexpr std::uint32_t kFar = 1U << 30;

}  // namespace

Status DeviceHandOff::Allocate() {
  ASSIGN_OR_RETURN(epoch_, device::DeviceBuffer::Allocate(device_, "hand-off", kLine));
  ASSIGN_OR_RETURN(flags_,
                   device::MappedBuffer::Allocate(device_, "hand-off", kLine * (kFlags + 1)));
  step_ = 0;
  ASSIGN_OR_RETURN(const auto stream, device::DeviceStream::Create(device_));
  RETURN_IF_ERROR(stream->Fill(epoch_.data(), 0, kLine));
  return stream->Synchronize();
}

std::uint32_t* DeviceHandOff::flag(Flag which, bool on_device) const {
  auto* lines = on_device ? flags_.on_device<std::byte>() : flags_.host<std::byte>();
  return reinterpret_cast<std::uint32_t*>(lines + kLine * static_cast<std::size_t>(which));
}

Status DeviceHandOff::Begin(device::DeviceStream& stream) {
  return device_.Check(device_.ops().sparse.advance(epoch_.as<std::uint32_t>(), stream.handle()),
                       "beginning an exchange");
}

Status DeviceHandOff::Publish(device::DeviceStream& stream, Flag which, const void* from,
                              void* to_host, void* to_mapped, std::size_t bytes) {
  if (bytes > kPublishBytesMax) {
    RETURN_IF_ERROR(stream.CopyToHost(to_host, from, bytes));
    bytes = 0;
  }
  return device_.Check(device_.ops().sparse.publish({.from = from,
                                                     .to = to_mapped,
                                                     .bytes = bytes,
                                                     .flag = flag(which, true),
                                                     .epoch = epoch_.as<std::uint32_t>()},
                                                    stream.handle()),
                       "handing results to the CPU");
}

Status DeviceHandOff::Await(device::DeviceStream& stream, Flag which) {
  return device_.Check(device_.ops().sparse.wait({.flag = flag(which, true),
                                                  .epoch = epoch_.as<std::uint32_t>(),
                                                  .error = flag(kFlags, true),
                                                  .spins_max = kSpinsMax},
                                                 stream.handle()),
                       "waiting for the CPU");
}

void DeviceHandOff::Raise(Flag which) {
  std::atomic_ref(*flag(which, false)).store(step_, std::memory_order_release);
}

Status DeviceHandOff::Wait(Flag which) {
  const std::atomic_ref value(*flag(which, false));
  const auto reached = [&] {
    return static_cast<std::int32_t>(value.load(std::memory_order_acquire) - step_) >= 0;
  };
  for (int i = 0; i < kPauses; ++i) {
    if (reached()) return OkStatus();
  }
  const auto begin = std::chrono::steady_clock::now();
  auto ask = begin + kAskAfter;
  while (!reached()) {
    ::sched_yield();
    const auto now = std::chrono::steady_clock::now();
    if (now < ask) continue;
    ask = now + kAskAfter;
    RETURN_IF_ERROR(device_.FreeMemory().status());  // any call reports a sticky error
    if (now - begin > kGiveUpAfter) {
      return base::Unavailable(device_.properties().name, " has not answered for ",
                               kGiveUpAfter.count(), " seconds: see the kernel's log (dmesg)");
    }
  }
  return OkStatus();
}

void DeviceHandOff::Release() {
  for (const Flag which : {kHostInput, kHostMaxima, kHostSums})
    std::atomic_ref(*flag(which, false)).store(step_ + kFar, std::memory_order_release);
}

Status DeviceHandOff::CheckWaits() const {
  if (std::atomic_ref(*flag(kFlags, false)).load(std::memory_order_acquire) == 0) return OkStatus();
  return base::Unavailable(device_.properties().name,
                           " gave up waiting for the CPU's part of a layer");
}

}  // namespace thermocline::gpu
