// The file of a Unix socket that a daemon listens on: nobody else's, and gone with it.
#pragma once

#include <sys/types.h>

#include <string>

#include "engine/base/status.h"

namespace thermocline::net {

// Movable. Holds a lock file beside it (PATH.lock) for as long as it lives, so that of two daemons
// that find a file left by a third only one takes it over.
class SocketFile {
 public:
  // Unavailable: there is no folder for it, a file that is no socket is there, or another process
  // listens or is about to. Removes the file of a process that was killed.
  static Result<SocketFile> Claim(const std::string& path);
  // As the checks of Claim, without taking anything.
  static Status CheckPlace(const std::string& path);

  SocketFile() = default;
  SocketFile(SocketFile&& other) noexcept;
  SocketFile& operator=(SocketFile&& other) noexcept;
  ~SocketFile();

  // The socket is bound: its file is ours to remove.
  void NoteBound();
  const std::string& path() const { return path_; }  // "" = none

 private:
  Status Lock();

  std::string path_;
  int lock_ = -1;
  ino_t inode_ = 0;  // of the bound file; 0 = none
};

}  // namespace thermocline::net
