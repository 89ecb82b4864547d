// Copies of the certificate and key in memory, which gRPC's library watches in place of the files:
// it aborts the process when it reads an empty one.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "engine/base/mutex.h"
#include "engine/base/status.h"

namespace thermocline::rpc {

// Thread-safe. Its own thread copies the files again every second, while both are complete PEM.
class CertificateCopies {
 public:
  // Unavailable: the system has no memory files or descriptors. Errors of reading the files.
  static Result<std::shared_ptr<CertificateCopies>> Create(const std::string& certificate,
                                                           const std::string& key);
  ~CertificateCopies();
  CertificateCopies(const CertificateCopies&) = delete;
  CertificateCopies& operator=(const CertificateCopies&) = delete;

  std::string certificate_path() const { return certificate_.path(); }
  std::string key_path() const { return key_.path(); }

 private:
  // A file and its copy.
  struct Copy {
    std::string source, text = {};
    int fd = -1;

    std::string path() const { return "/proc/self/fd/" + std::to_string(fd); }
    Status Open();
    // Writes `fresh` over the old text, padded to its length, so that a reader never finds an empty
    // file.
    void Write(std::string fresh);
  };
  CertificateCopies(const std::string& certificate, const std::string& key)
      : certificate_{.source = certificate}, key_{.source = key} {}
  Status Refresh();
  void Run();

  Copy certificate_, key_;
  base::Mutex mutex_;
  base::Condition stops_changed_;
  bool stops_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace thermocline::rpc
