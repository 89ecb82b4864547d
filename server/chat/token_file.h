// The token memory's copy on flash, so that conversations go on after a restart: a file of records
// that is only appended to.
//
//   PATH := record*      record := magic [4]  tokens [4]  key [32]  token [4]*  checksum [8]
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "server/chat/token_memory.h"

namespace thermocline::chat {

// Thread-safe. Records are written by a thread of its own; those that find its queue full, or a
// disk that refuses them, are not kept.
class TokenFile {
 public:
  // Opens or creates the file, readable by its owner alone, and puts its answers into `memory`, the
  // last ones last. A damaged record ends the file. If another process has it open, nothing is
  // written. Borrows `memory`. Errors as base::ErrnoStatus.
  static Result<std::unique_ptr<TokenFile>> Open(const std::string& path, TokenMemory& memory);
  // Writes what is queued.
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  void Append(const base::Digest256& key, std::vector<int> tokens) EXCLUDES(mutex_);

 private:
  struct Record {
    base::Digest256 key;
    std::vector<int> tokens;
  };
  TokenFile(std::string path, TokenMemory& memory, int fd);
  Status Load();
  void Main() EXCLUDES(mutex_);
  Status Write(const Record& record);
  // Replaces the file by what the memory has, once it is several times as large.
  Status Shorten();

  const std::string path_;
  TokenMemory& memory_;
  int fd_;  // the thread's, once it runs
  bool read_only_ = false;
  std::uint64_t bytes_ = 0;  // the thread's
  base::Mutex mutex_;
  base::Condition changed_;
  std::deque<Record> queue_ GUARDED_BY(mutex_);
  std::size_t queued_tokens_ GUARDED_BY(mutex_) = 0;
  bool ends_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace thermocline::chat
