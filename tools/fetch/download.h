// One file fetched to a path: locked, resumed, checked while it is written, and renamed when it is
// complete, so that nothing else sees a half of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "engine/base/status.h"
#include "tools/common/eta_bar.h"

namespace thermocline::tools {

// The state of a command that fetches files.
struct FetchedPart {
  std::string label, sha256;                // of the file; sha256 may be ""
  std::int64_t bytes = 0, bytes_total = 0;  // of all files
};

// The progress of all files of a command: a bar on a terminal, otherwise a line every ten seconds;
// or, if there is a listener, calls of it: for each file, and four times a second.
class FetchProgress {
 public:
  using Listener = std::function<void(const FetchedPart& part)>;

  explicit FetchProgress(Listener listener = {}) : listener_(std::move(listener)) {}
  void AddTotal(std::int64_t bytes) { total_ += bytes; }
  void Begin(const std::string& label, const std::string& sha256);
  // Adds bytes that have arrived, or takes those back that have to be fetched again.
  void Add(std::int64_t bytes);
  void Clear() { bar_.Clear(); }
  std::int64_t fetched() const { return fetched_; }
  // Adds bytes of an earlier run.
  void Found(std::int64_t bytes) { done_ += bytes; }

 private:
  void Tell();

  EtaBar bar_;
  const Listener listener_;
  std::string label_ = {}, sha256_ = {};
  std::int64_t total_ = 0, done_ = 0, fetched_ = 0;
  std::chrono::steady_clock::time_point printed_ = std::chrono::steady_clock::now();
};

struct Download {
  std::string url, token = {};
  std::string path;         // the complete file
  std::string lock;         // a file that every writer of `path` locks
  std::string label;        // for messages
  std::string sha256 = {};  // 64 digits, or "": the size alone is checked
  std::int64_t bytes = -1;  // -1 = the server's Content-Length
  std::string page = {};    // where a person gets access, for 401 and 403
};

// Waits for another process that fetches the same file. OK if the file is there with its size.
// Unavailable after three tries; ResourceExhausted: the disk is full; DataLoss: the digest or size
// is not the promised one; PermissionDenied, Unauthenticated, NotFound: 401, 403, 404.
Status Fetch(const Download& download, FetchProgress& progress);

// ResourceExhausted with both numbers if the file system of `folder`, or of its nearest parent that
// exists, has less than `bytes` free.
Status CheckFreeSpace(const std::string& folder, std::int64_t bytes);
// Creates a file's folders below `root`. FailedPrecondition if one of them is a link.
Status MakeFolders(const std::string& root, const std::string& path);
// Writes a small file at once: a temporary file, renamed.
Status WriteSmallFile(const std::string& path, const std::string& text);

// Unauthenticated, PermissionDenied, NotFound or Unavailable, by the status of an answer that is
// neither 200 nor 206.
Status AccessStatus(long status, const std::string& what, const std::string& page, bool has_token);

}  // namespace thermocline::tools
