#include "engine/base/huge_buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

namespace thermocline::base {
namespace {
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

// Returns false if the system never gives huge pages, or not to this process: madvise succeeds even
// then.
bool SystemGivesHugePages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  if (!std::getline(file, line) || line.find("[never]") != std::string::npos) return false;
  std::ifstream status("/proc/self/status");
  while (std::getline(status, line)) {
    if (line.starts_with("THP_enabled:")) return line.find('1') != std::string::npos;
  }
  return true;
}

std::atomic<std::size_t> held_by_all = 0, most_held = 0;

void CountHeld(std::size_t bytes) {
  const std::size_t now = held_by_all.fetch_add(bytes) + bytes;
  std::size_t most = most_held.load();
  while (now > most && !most_held.compare_exchange_weak(most, now)) {
  }
}

std::size_t PageBytes() {
  const long bytes = ::sysconf(_SC_PAGESIZE);
  return bytes > 0 ? bytes : 4096;
}

}  // namespace

Result<HugeBuffer> HugeBuffer::Allocate(std::size_t bytes) {
  const std::size_t mapping_bytes = bytes + kHugePageBytes;
  void* mapping =
      ::mmap(nullptr, mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    return ResourceExhausted("cannot allocate ", HumanBytes(bytes), ": ", std::strerror(errno));
  }
  const auto address = reinterpret_cast<std::uintptr_t>(mapping);
  const std::uintptr_t aligned = (address + kHugePageBytes - 1) & ~(kHugePageBytes - 1);
  HugeBuffer buffer;
  buffer.data_ = reinterpret_cast<std::byte*>(aligned);  // NOLINT(performance-no-int-to-ptr)
  buffer.bytes_ = bytes;
  CountHeld(bytes);
  buffer.mapping_ = mapping;
  buffer.mapping_bytes_ = mapping_bytes;
  buffer.huge_ = ::madvise(buffer.data_, bytes, MADV_HUGEPAGE) == 0 && SystemGivesHugePages();
  return buffer;
}

HugeBuffer& HugeBuffer::operator=(HugeBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_bytes_, other.mapping_bytes_);
  std::swap(given_back_, other.given_back_);
  std::swap(huge_, other.huge_);
  return *this;
}

void HugeBuffer::GiveBack(const void* begin, std::size_t bytes, Pages pages) {
  const std::size_t page = pages == Pages::kHuge ? kHugePageBytes : PageBytes();
  const auto at = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t first = (at + page - 1) / page * page, last = (at + bytes) / page * page;
  if (first >= last) return;
  void* const memory = reinterpret_cast<void*>(first);  // NOLINT(performance-no-int-to-ptr)
  // Otherwise the system would make a huge page whole again as soon as one small page of it is in
  // use.
  if (pages == Pages::kSmall) ::madvise(memory, last - first, MADV_NOHUGEPAGE);
  if (::madvise(memory, last - first, MADV_DONTNEED) != 0) return;
  given_back_ += last - first;
  held_by_all -= last - first;
}

std::size_t HugeBuffer::HeldByAll() { return held_by_all; }
std::size_t HugeBuffer::MostHeldByAll() { return most_held; }
void HugeBuffer::ResetMost() { most_held = held_by_all.load(); }

HugeBuffer::~HugeBuffer() {
  if (data_ == nullptr) return;
  ::munmap(mapping_, mapping_bytes_);
  held_by_all -= held();
}

}  // namespace thermocline::base
