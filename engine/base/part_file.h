// A large file that is written at any place and over several runs, and replaces another when it is
// whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "engine/base/status.h"

namespace thermocline::base {

// PATH.part, locked against other processes that open it so. PATH stays as it is until Commit.
// The destructor leaves the part, for a later run. Thread-compatible.
class PartFile {
 public:
  // The part that an earlier run left, or an empty one. Unavailable: another process writes it.
  static Result<std::unique_ptr<PartFile>> Open(const std::string& path);
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  const std::string& part_path() const { return part_path_; }
  std::uint64_t size() const { return size_; }  // bytes

  // Makes the part `bytes` long, with room on the disk for all of it where the file system can
  // promise that. ResourceExhausted: there is not; the message names the part, what it takes and
  // what is free.
  Status Reserve(std::uint64_t bytes);
  // Forgets what lies behind the first `bytes`.
  Status Truncate(std::uint64_t bytes);
  // Forgets what an earlier run has written.
  Status Clear();
  Status WriteAt(std::uint64_t offset, std::span<const std::byte> bytes);
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const;
  // Everything written is on the disk, and no longer in the page cache where that can be had.
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
