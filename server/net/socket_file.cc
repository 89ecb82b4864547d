#include "server/net/socket_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "engine/base/strings.h"

namespace thermocline::net {
namespace {

Status Taken(const std::string& path) {
  return base::Unavailable("cannot listen on '", path, "': another process does");
}

// True if a process listens on the socket. Does not wait for a process that is too busy to accept.
bool IsListenedOn(const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (path.size() >= sizeof(name.sun_path)) return false;
  std::memcpy(name.sun_path, path.data(), path.size());
  const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const bool refused = ::connect(probe, reinterpret_cast<sockaddr*>(&name), sizeof(name)) != 0 &&
                       errno == ECONNREFUSED;
  ::close(probe);
  return !refused;
}

bool IsSameFile(int file, const std::string& path) {
  struct stat open, there;
  return ::fstat(file, &open) == 0 && ::lstat(path.c_str(), &there) == 0 &&
         open.st_ino == there.st_ino && open.st_dev == there.st_dev;
}

}  // namespace

Status SocketFile::CheckPlace(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder.empty() ? "." : folder, ignored)) {
    return base::Unavailable("cannot listen on '", path, "': there is no folder '", folder.string(),
                             "'");
  }
  struct stat file;
  if (::lstat(path.c_str(), &file) == 0 && !S_ISSOCK(file.st_mode))
    return base::Unavailable("cannot listen on '", path, "': a file that is no socket is there");
  return OkStatus();
}

Result<SocketFile> SocketFile::Claim(const std::string& path) {
  RETURN_IF_ERROR(CheckPlace(path));
  SocketFile out;
  out.path_ = path;
  RETURN_IF_ERROR(out.Lock());
  struct stat file;
  if (::lstat(path.c_str(), &file) == 0) {
    if (IsListenedOn(path)) return Taken(path);
    ::unlink(path.c_str());
  }
  return out;
}

// A daemon removes its lock file while it still holds the lock, so a lock counts only if the file
// at the path is the locked one.
Status SocketFile::Lock() {
  const std::string name = path_ + ".lock";
  constexpr int kAttempts = 16;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    lock_ = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock_ < 0)
      return base::Unavailable("cannot listen on '", path_, "': cannot open '", name,
                               "': ", std::strerror(errno));
    if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
      ::close(std::exchange(lock_, -1));
      return Taken(path_);
    }
    if (IsSameFile(lock_, name)) return OkStatus();
    ::close(std::exchange(lock_, -1));
  }
  return Taken(path_);
}

void SocketFile::NoteBound() {
  struct stat file;
  if (::lstat(path_.c_str(), &file) == 0) inode_ = file.st_ino;
}

SocketFile::SocketFile(SocketFile&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      lock_(std::exchange(other.lock_, -1)),
      inode_(std::exchange(other.inode_, 0)) {}

SocketFile& SocketFile::operator=(SocketFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(lock_, other.lock_);
  std::swap(inode_, other.inode_);
  return *this;
}

SocketFile::~SocketFile() {
  struct stat file;
  const bool ours = inode_ != 0 && ::lstat(path_.c_str(), &file) == 0 && file.st_ino == inode_;
  if (ours) ::unlink(path_.c_str());
  if (lock_ < 0) return;
  ::unlink((path_ + ".lock").c_str());
  ::close(lock_);
}

}  // namespace thermocline::net
