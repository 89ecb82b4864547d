#include "engine/base/direct_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <utility>

#include "engine/base/posix_error.h"

namespace thermocline::base {
namespace {

constexpr std::size_t kAlignmentMin = 512, kAlignmentMax = 65536;
// Tried if the system does not state an alignment: some file systems (btrfs) accept less, but then
// silently read through the page cache.
constexpr std::size_t kAlignmentUnknown = 4096;

bool LiesInMemory(int fd) {
  struct statfs info {};
  if (::fstatfs(fd, &info) != 0) return false;
  return info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC;
}

// Returns the alignment that the file system requires for direct reads (kernel 6.1 and later); 0 if
// it allows none, kAlignmentUnknown if it does not state one.
std::size_t StatedAlignment(int fd) {
#ifdef STATX_DIOALIGN
  struct statx info {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
      (info.stx_mask & STATX_DIOALIGN) != 0) {
    if (info.stx_dio_offset_align == 0) return 0;
    const std::size_t stated = std::max(info.stx_dio_mem_align, info.stx_dio_offset_align);
    return std::bit_ceil(std::max(stated, kAlignmentMin));
  }
#endif
  (void)fd;
  return kAlignmentUnknown;
}

}  // namespace

Result<DirectFile> DirectFile::Open(const std::string& path, bool allow_direct) {
  // Without O_NONBLOCK a pipe would block here; the flag is cleared again for the regular file.
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  int fd = allow_direct ? ::open(path.c_str(), kFlags | O_DIRECT) : -1;
  const bool takes_direct = fd >= 0;
  if (fd < 0) fd = ::open(path.c_str(), kFlags);
  if (fd < 0) return ErrnoStatus(path, "open", errno);
  DirectFile file(path, fd);
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
    return InvalidArgument(path, ": not a regular file");
  file.size_ = info.st_size;
  if (!allow_direct) {
    file.why_not_direct_ = "not asked for";
  } else if (!takes_direct) {
    file.why_not_direct_ = "the file system has no O_DIRECT";
  } else {
    file.FindAlignment();
  }
  if (::fcntl(fd, F_SETFL, file.direct() ? O_DIRECT : 0) != 0)
    return ErrnoStatus(path, "set the way of reading", errno);
  // Read-ahead would fetch bytes that are not needed.
  if (!file.direct()) ::posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
  return file;
}

void DirectFile::FindAlignment() {
  if (LiesInMemory(fd_)) {
    why_not_direct_ = "the file lies in memory";
    return;
  }
  const std::size_t stated = StatedAlignment(fd_);
  if (stated == 0) {
    why_not_direct_ = "the file system allows no direct reads of this file";
    return;
  }
  for (std::size_t alignment = stated; alignment <= kAlignmentMax; alignment *= 2) {
    if (!Takes(alignment)) continue;
    alignment_ = alignment;
    return;
  }
  why_not_direct_ = "the file system takes O_DIRECT but no direct read";
}

bool DirectFile::Takes(std::size_t alignment) const {
  const std::unique_ptr<std::byte, decltype(&std::free)> memory(
      static_cast<std::byte*>(std::aligned_alloc(2 * alignment, 2 * alignment)), &std::free);
  // An odd multiple, which is not a multiple of any larger power of two.
  const std::uint64_t offset = size_ > alignment ? alignment : 0;
  return ::pread(fd_, memory.get() + alignment, alignment, offset) >= 0 ||
         (errno != EINVAL && errno != EOPNOTSUPP);
}

DirectFile::DirectFile(DirectFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      alignment_(other.alignment_),
      why_not_direct_(std::move(other.why_not_direct_)) {}

DirectFile::~DirectFile() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace thermocline::base
