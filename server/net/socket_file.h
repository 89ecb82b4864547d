// The file of a Unix socket: owned by one daemon and removed with it.
#pragma once

#include <sys/types.h>

#include <string>

#include "engine/base/status.h"

namespace thermocline::net {

// Movable. Holds a lock file (PATH.lock) while it lives, so that only one of two daemons takes over
// the file that a third one left.
class SocketFile {
 public:
  // Unavailable: its folder does not exist, another kind of file is there, or another process
  // listens or is about to. Removes the file of a process that was killed.
  static Result<SocketFile> Claim(const std::string& path);
  // The checks of Claim, without taking the file.
  static Status CheckPlace(const std::string& path);

  SocketFile() = default;
  SocketFile(SocketFile&& other) noexcept;
  SocketFile& operator=(SocketFile&& other) noexcept;
  ~SocketFile();

  // Called after bind: the file is ours to remove.
  void NoteBound();
  const std::string& path() const { return path_; }  // "" = none

 private:
  Status Lock();

  std::string path_;
  int lock_ = -1;
  ino_t inode_ = 0;  // of the bound file; 0 = none
};

}  // namespace thermocline::net
