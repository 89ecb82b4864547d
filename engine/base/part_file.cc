#include "engine/base/part_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "engine/base/posix_error.h"

namespace thermocline::base {
namespace {

// Checks that the open file is still the one of that name: a process that waited for the lock may
// have opened it just before its writer renamed it.
bool IsNamed(int fd, const std::string& path) {
  struct stat open_one {
  }, named{};
  return ::fstat(fd, &open_one) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino;
}

Status Lock(int fd, const std::string& part_path) {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK)
      return Unavailable(part_path, ": another process is writing it; wait for it or end it");
    if (errno == ENOTSUP || errno == ENOLCK || errno == EINVAL) break;  // some systems cannot
    return ErrnoStatus(part_path, "lock", errno);
  }
  return OkStatus();
}

Status NoRoom(const std::string& part_path, std::uint64_t bytes, std::uint64_t more,
              std::uint64_t free) {
  return ResourceExhausted(part_path, ": takes ", bytes, " bytes (", HumanBytes(bytes), "), ", more,
                           " more than it has, and the file system has ", free, " free (",
                           HumanBytes(free), "); make room or choose another place");
}

}  // namespace

Result<std::unique_ptr<PartFile>> PartFile::Open(const std::string& path) {
  const std::string part_path = path + ".part";
  while (true) {
    const int fd = ::open(part_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return ErrnoStatus(part_path, "open", errno);
    struct stat info {};
    Status status = Lock(fd, part_path);
    if (status.ok() && (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)))
      status = InvalidArgument(part_path, ": not a regular file");
    if (status.ok() && IsNamed(fd, part_path))
      return std::unique_ptr<PartFile>(new PartFile(path, part_path, fd, info.st_size));
    ::close(fd);
    RETURN_IF_ERROR(status);
  }
}

PartFile::~PartFile() { ::close(fd_); }

Status PartFile::Reserve(std::uint64_t bytes) {
  struct stat info {};
  struct statvfs system {};
  if (::fstat(fd_, &info) != 0 || ::fstatvfs(fd_, &system) != 0)
    return ErrnoStatus(part_path_, "look at", errno);
  const std::uint64_t has = static_cast<std::uint64_t>(info.st_blocks) * 512;
  const std::uint64_t more = bytes > has ? bytes - has : 0;
  const std::uint64_t free = system.f_bavail * system.f_frsize;
  if (more > free) return NoRoom(part_path_, bytes, more, free);
  if (::ftruncate(fd_, bytes) != 0) return ErrnoStatus(part_path_, "resize", errno);
  size_ = bytes;
  // posix_fallocate is not used, because it writes every block if the file system cannot reserve
  // space.
  while (bytes > 0 && ::fallocate(fd_, 0, 0, bytes) != 0) {
    if (errno == EINTR) continue;
    if (errno == ENOSPC || errno == EDQUOT) return NoRoom(part_path_, bytes, more, free);
    if (errno == EOPNOTSUPP || errno == ENOSYS) break;
    return ErrnoStatus(part_path_, "reserve", errno);
  }
  return OkStatus();
}

Status PartFile::Clear() { return Truncate(0); }

Status PartFile::Truncate(std::uint64_t bytes) {
  if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0)
    return ErrnoStatus(part_path_, "resize", errno);
  size_ = bytes;
  return OkStatus();
}

Status PartFile::WriteAt(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(part_path_, "write", errno);
    offset += n;
    bytes = bytes.subspan(n);
  }
  return OkStatus();
}

Status PartFile::ReadAt(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = ::pread(fd_, out.data(), out.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(part_path_, "read", errno);
    if (n == 0) return DataLoss(part_path_, ": ends at byte ", offset);
    offset += n;
    out = out.subspan(n);
  }
  return OkStatus();
}

Status PartFile::Sync() {
  if (::fsync(fd_) != 0) return ErrnoStatus(part_path_, "flush", errno);
  ::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
  return OkStatus();
}

Status PartFile::Commit() {
  RETURN_IF_ERROR(Sync());
  if (std::rename(part_path_.c_str(), path_.c_str()) != 0)
    return ErrnoStatus(path_, "rename", errno);
  return SyncFolderOf(path_);
}

void PartFile::Discard() { ::unlink(part_path_.c_str()); }

}  // namespace thermocline::base
