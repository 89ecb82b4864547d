// A file opened for reads that bypass the page cache (O_DIRECT) if its file system allows that, and
// the alignment such reads must have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/base/status.h"

namespace thermocline::base {

// Owns the descriptor. Movable.
class DirectFile {
 public:
  // Errors as base::OpenFile.
  static Result<DirectFile> Open(const std::string& path, bool allow_direct);
  DirectFile(DirectFile&& other) noexcept;
  DirectFile& operator=(DirectFile&&) = delete;
  ~DirectFile();

  const std::string& path() const { return path_; }
  int fd() const { return fd_; }
  std::uint64_t size() const { return size_; }
  std::size_t alignment() const { return alignment_; }  // a power of two, 512 at least
  bool direct() const { return why_not_direct_.empty(); }
  const std::string& why_not_direct() const { return why_not_direct_; }  // "" if it is direct

 private:
  DirectFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  // Finds the alignment of direct reads; if there is none, sets why_not_direct_.
  void FindAlignment();
  // Tries one aligned read. Device errors do not count against the alignment.
  bool Takes(std::size_t alignment) const;

  std::string path_;
  int fd_;
  std::uint64_t size_ = 0;
  std::size_t alignment_ = 4096;
  std::string why_not_direct_;
};

}  // namespace thermocline::base
