#include "engine/base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "engine/base/check.h"
#include "engine/base/direct_file.h"
#include "engine/base/index.h"
#include "engine/base/posix_error.h"

namespace thermocline::base {
namespace {

constexpr std::size_t kDirectBytes = std::size_t{1} << 20;  // of one read, at most

class AlignedBytes {
 public:
  AlignedBytes() = default;
  // Requires: `bytes` is a multiple of `alignment`.
  AlignedBytes(std::size_t bytes, std::size_t alignment)
      : data_(static_cast<std::byte*>(std::aligned_alloc(alignment, bytes))),
        alignment_(alignment) {
    CHECK(data_ != nullptr);
  }
  std::byte* data() const { return data_.get(); }
  std::size_t alignment() const { return alignment_; }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t alignment_ = 0;
};

class PosixFile final : public File {
 public:
  PosixFile(std::string path, int fd, std::uint64_t size)
      : path_(std::move(path)), fd_(fd), size_(size) {}
  ~PosixFile() override { ::close(fd_); }

  const std::string& path() const override { return path_; }
  std::uint64_t size() const override { return size_; }

  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const override {
    if (direct_ != nullptr) return ReadAround(offset, out);
    std::size_t done = 0;
    while (done < out.size()) {
      const ssize_t n = ::pread(fd_, out.data() + done, out.size() - done, offset + done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(path_, "read", errno);
      if (n == 0) return Ended(offset + done, out.size() - done);
      done += n;
    }
    if (drops_) Drop(offset, out.size());
    return OkStatus();
  }

  void ReadAhead(std::uint64_t offset, std::uint64_t bytes) const override {
    if (direct_ != nullptr || drops_) return;
    ::posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes),
                    POSIX_FADV_WILLNEED);
  }

  std::string ReadDirectly() override {
    // Reopens the file that is open, even if another file has its name by now.
    auto direct = DirectFile::Open(StrCat("/proc/self/fd/", fd_), /*allow_direct=*/true);
    drops_ = true;
    ::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);  // also drops pages read ahead earlier
    if (!direct.ok()) return direct.status().message();
    if (!direct->direct()) return direct->why_not_direct();
    direct_ = std::make_unique<DirectFile>(*std::move(direct));
    return "";
  }

 private:
  Status Ended(std::uint64_t at, std::size_t missing) const {
    return DataLoss(path_, ": file ends at byte ", at, ", ", missing,
                    " bytes short; it was truncated while open");
  }

  // Reads whole blocks into a separate buffer, and copies the requested bytes from there.
  Status ReadAround(std::uint64_t offset, std::span<std::byte> out) const {
    const std::size_t alignment = direct_->alignment();
    const AlignedBytes buffer(RoundUp(std::min(out.size() + alignment, kDirectBytes), alignment),
                              alignment);
    while (!out.empty()) {
      const std::uint64_t begin = offset / alignment * alignment;
      const std::size_t skipped = offset - begin, wanted = std::min(out.size(), kDirectBytes);
      const std::size_t bytes = RoundUp(std::min(skipped + wanted, kDirectBytes), alignment);
      const ssize_t n = ::pread(direct_->fd(), buffer.data(), bytes, begin);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0)
        return ErrnoStatus(path_, "read around the page cache (model.read: direct)", errno);
      const std::size_t read = n;
      if (read <= skipped) return Ended(offset, out.size());
      const std::size_t copied = std::min(out.size(), read - skipped);
      std::memcpy(out.data(), buffer.data() + skipped, copied);
      out = out.subspan(copied);
      offset += copied;
    }
    return OkStatus();
  }

  // Drops the pages at both ends too: a later reader of those pages reads them once more.
  void Drop(std::uint64_t offset, std::size_t bytes) const {
    constexpr std::uint64_t kPage = 4096;
    const std::uint64_t begin = offset / kPage * kPage;
    ::posix_fadvise(fd_, static_cast<off_t>(begin),
                    static_cast<off_t>(RoundUp(offset + bytes, kPage) - begin),
                    POSIX_FADV_DONTNEED);
  }

  std::string path_;
  int fd_;
  std::uint64_t size_;
  std::unique_ptr<DirectFile> direct_;  // null: reads are ordinary ones
  bool drops_ = false;                  // drops the pages after each read
};

std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace

Status ErrnoStatus(const std::string& path, const char* action, int error) {
  const std::string message = StrCat(path, ": ", action, ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return NotFound(message);
    case EACCES:
    case EPERM:
      return Status(StatusCode::kPermissionDenied, message);
    case ENOSPC:
    case EDQUOT:
      return ResourceExhausted(message);
    default:
      return Unavailable(message);
  }
}

Status SyncFolderOf(const std::string& path) {
  const std::string folder = FolderOf(path);
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return OkStatus();  // the folder is writable but not readable, so it cannot be synced
  const bool synced = ::fsync(fd) == 0 || errno == EINVAL;  // some file systems cannot
  const int error = errno;
  ::close(fd);
  return synced ? OkStatus() : ErrnoStatus(folder, "flush", error);
}

Result<std::unique_ptr<File>> OpenFile(const std::string& path) {
  // Without O_NONBLOCK, opening a pipe would wait for its writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ErrnoStatus(path, "open", errno);
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return InvalidArgument(path, ": not a regular file");
  }
  return std::unique_ptr<File>(new PosixFile(path, fd, info.st_size));
}

Result<std::string> ReadFileToString(const std::string& path, std::uint64_t bytes_max) {
  ASSIGN_OR_RETURN(auto file, OpenFile(path));
  if (file->size() > bytes_max) {
    return ResourceExhausted(path, ": ", file->size(), " bytes, more than the ", bytes_max,
                             " allowed here");
  }
  std::string text(file->size(), '\0');
  RETURN_IF_ERROR(file->ReadAt(0, std::as_writable_bytes(std::span(text))));
  return text;
}

bool PathExists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

bool IsDirectory(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

Result<std::unique_ptr<FileWriter>> FileWriter::Create(const std::string& path) {
  std::string temporary = path + ".tmp-XXXXXX";
  const int fd = ::mkostemp(temporary.data(), O_CLOEXEC);  // follows no link
  if (fd < 0) return ErrnoStatus(path, "create a file beside it", errno);
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::fchmod(fd, 0666 & ~mask);
  std::FILE* file = ::fdopen(fd, "wb");
  CHECK(file != nullptr);
  return std::unique_ptr<FileWriter>(new FileWriter(path, std::move(temporary), file));
}

FileWriter::~FileWriter() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  ::unlink(temporary_.c_str());
}

Status FileWriter::Append(std::span<const std::byte> bytes) {
  if (bytes.empty()) return OkStatus();  // may have no address
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size())
    return ErrnoStatus(temporary_, "write", errno);
  bytes_written_ += bytes.size();
  return OkStatus();
}

Status FileWriter::Commit() {
  const bool flushed = std::fflush(file_) == 0 && ::fsync(::fileno(file_)) == 0;
  const int error = errno;
  if (!flushed) return ErrnoStatus(temporary_, "flush", error);
  std::fclose(file_);
  file_ = nullptr;
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    Status failed = ErrnoStatus(path_, "rename", errno);
    ::unlink(temporary_.c_str());
    return failed;
  }
  return SyncFolderOf(path_);
}

Result<std::unique_ptr<FolderLock>> FolderLock::Of(const std::string& path) {
  const std::string folder = FolderOf(path);
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(folder, "open", errno);
  std::unique_ptr<FolderLock> lock(new FolderLock(fd));
  while (::flock(fd, LOCK_EX) != 0) {
    if (errno == ENOTSUP || errno == ENOLCK || errno == EINVAL) break;  // some file systems cannot
    if (errno != EINTR) return ErrnoStatus(folder, "lock", errno);
  }
  return lock;
}

FolderLock::~FolderLock() { ::close(fd_); }

}  // namespace thermocline::base
