// A large file that is written in any order and over several runs, and replaces another when it is
// complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "engine/base/status.h"

namespace thermocline::base {

// PATH.part, locked against other processes that open it in the same way. PATH stays as it is until
// Commit. The destructor leaves the part, for a later run. Thread-compatible.
class PartFile {
 public:
  // Opens the part that an earlier run left, or an empty one. Unavailable: another process is
  // writing it.
  static Result<std::unique_ptr<PartFile>> Open(const std::string& path);
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  const std::string& part_path() const { return part_path_; }
  std::uint64_t size() const { return size_; }  // bytes

  // Makes the part `bytes` long, and reserves disk space for all of it if the file system can.
  // ResourceExhausted if there is not enough; the message names the part, the bytes needed and the
  // bytes free.
  Status Reserve(std::uint64_t bytes);
  // Drops everything after the first `bytes`.
  Status Truncate(std::uint64_t bytes);
  // Drops the bytes that an earlier run has written.
  Status Clear();
  Status WriteAt(std::uint64_t offset, std::span<const std::byte> bytes);
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const;
  // Flushes all written bytes to the disk, and drops them from the page cache if possible.
  Status Sync();
  // Syncs, renames over PATH, and flushes the folder.
  Status Commit();
  // Removes the part.
  void Discard();

 private:
  PartFile(std::string path, std::string part_path, int fd, std::uint64_t size)
      : path_(std::move(path)), part_path_(std::move(part_path)), fd_(fd), size_(size) {}
  const std::string path_, part_path_;
  const int fd_;
  std::uint64_t size_;
};

}  // namespace thermocline::base
