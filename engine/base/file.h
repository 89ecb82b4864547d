// The only door to the disk: reading files, mapping headers, writing files atomically.
//
// File is a seam: tests put a faulty one behind it.
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

// A readable file of fixed size. Thread-safe: reads carry their own offset.
class File {
 public:
  virtual ~File() = default;
  virtual const std::string& path() const = 0;
  virtual std::uint64_t size() const = 0;  // bytes
  // Fills `out` from `offset`. A short read is DataLoss naming file, offset and counts.
  virtual Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const = 0;
  // The whole file mapped read-only, valid as long as the File.
  virtual Result<std::span<const std::byte>> Map() = 0;
};

// NotFound, PermissionDenied or InvalidArgument (a folder) with the path and the reason.
Result<std::unique_ptr<File>> OpenFile(const std::string& path);

// The whole file as a string. ResourceExhausted above `bytes_max`.
Result<std::string> ReadFileToString(const std::string& path, std::uint64_t bytes_max = 256u << 20);

bool PathExists(const std::string& path);
bool IsDirectory(const std::string& path);

// Writes `path` by way of a new file beside it, whose name is nobody else's: the old file stays
// whole until Commit renames over it. Thread-compatible. Without Commit the destructor removes the
// temporary file.
class FileWriter {
 public:
  static Result<std::unique_ptr<FileWriter>> Create(const std::string& path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  Status Append(std::span<const std::byte> bytes);
  Status Append(std::string_view text) { return Append(std::as_bytes(std::span(text))); }
  std::uint64_t bytes_written() const { return bytes_written_; }
  // Flushes to the disk, renames, and flushes the folder.
  Status Commit();

 private:
  FileWriter(std::string path, std::string temporary, std::FILE* file)
      : path_(std::move(path)), temporary_(std::move(temporary)), file_(file) {}
  std::string path_, temporary_;
  std::FILE* file_;
  std::uint64_t bytes_written_ = 0;
};

// Keeps other processes that take it from the folder of a file, until it is destroyed: for reading
// a file, changing it and writing it. Waits for them.
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
