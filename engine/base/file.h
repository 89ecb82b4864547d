// Reading and mapping files, replacing files atomically, and a lock for a folder.
//
// Other code that opens files: part_file.h writes large files over several runs, engine/store reads
// blocks with O_DIRECT (direct_file.h), and a few files of /proc and /sys are read as streams. File
// is a seam: tests replace it by a faulty one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/status.h"

namespace thermocline::base {

// A readable file. size() is its size when it was opened. ReadAt is thread-safe (reads carry their
// own offset).
class File {
 public:
  virtual ~File() = default;
  virtual const std::string& path() const = 0;
  virtual std::uint64_t size() const = 0;  // bytes
  // Fills `out` from `offset`. DataLoss if the file ends before that, naming the file, the byte
  // where it ends and the number of missing bytes; other errors as ErrnoStatus (posix_error.h).
  virtual Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const = 0;
  // Begins to read bytes into the page cache, and may return before they are there. Does nothing
  // after ReadDirectly.
  virtual void ReadAhead(std::uint64_t, std::uint64_t) const {}
  // Drops the file from the page cache, and keeps later reads out of it: ReadAt then uses O_DIRECT
  // or, if the file system does not allow that, drops the pages after each read. Returns "", or the
  // reason why O_DIRECT is not used. For large reads, in any order: each is at least a block of the
  // device. Not thread-safe.
  virtual std::string ReadDirectly() { return "this file cannot"; }
};

// Opens a regular file. InvalidArgument, naming the path, if it is something else (a folder, a
// pipe); an error of open() as ErrnoStatus.
Result<std::unique_ptr<File>> OpenFile(const std::string& path);

// The file as a string, to the size it had when it was opened. ResourceExhausted above `bytes_max`;
// otherwise errors as OpenFile and File::ReadAt.
Result<std::string> ReadFileToString(const std::string& path, std::uint64_t bytes_max = 256u << 20);

// Also false if the path cannot be examined, for example without permission.
bool PathExists(const std::string& path);
bool IsDirectory(const std::string& path);

// Writes `path` through a temporary file beside it with a unique name (PATH.tmp-XXXXXX): the old
// file is unchanged until Commit renames over it. Without a successful Commit the temporary file is
// removed by the destructor at the latest; it remains only if the process is killed first.
// Thread-compatible.
class FileWriter {
 public:
  static Result<std::unique_ptr<FileWriter>> Create(const std::string& path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  Status Append(std::span<const std::byte> bytes);
  Status Append(std::string_view text) { return Append(std::as_bytes(std::span(text))); }
  std::uint64_t bytes_written() const { return bytes_written_; }
  // Flushes to the disk, renames, and flushes the folder if the system allows that. An error after
  // the rename leaves the new file in place. Called once, last.
  Status Commit();

 private:
  FileWriter(std::string path, std::string temporary, std::FILE* file)
      : path_(std::move(path)), temporary_(std::move(temporary)), file_(file) {}
  std::string path_, temporary_;
  std::FILE* file_;
  std::uint64_t bytes_written_ = 0;
};

// An advisory lock on the folder of a file, for reading, changing and writing that file. Only
// holders of this lock exclude each other, in one process or several; Of waits for the current
// holder. On a file system without flock it has no effect.
class FolderLock {
 public:
  static Result<std::unique_ptr<FolderLock>> Of(const std::string& path);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  explicit FolderLock(int fd) : fd_(fd) {}
  const int fd_;
};

}  // namespace thermocline::base
