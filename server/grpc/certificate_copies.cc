#include "server/grpc/certificate_copies.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/posix_error.h"
#include "server/core/certificate_pair.h"

namespace thermocline::rpc {
namespace {

constexpr std::size_t kBytesMax = 1 << 20;

// True if `text` has a PEM block and ends with the end of one.
bool IsComplete(const std::string& text) {
  const std::size_t last = text.find_last_not_of(" \t\r\n");
  const std::size_t end = text.rfind("-----END ");
  return text.find("-----BEGIN ") != std::string::npos && end != std::string::npos &&
         last != std::string::npos && text.compare(last - 4, 5, "-----") == 0 &&
         text.find('\n', end) >= last;
}

}  // namespace

Result<std::shared_ptr<CertificateCopies>> CertificateCopies::Create(const std::string& certificate,
                                                                     const std::string& key) {
  std::shared_ptr<CertificateCopies> copies(new CertificateCopies(certificate, key));
  RETURN_IF_ERROR(copies->certificate_.Open());
  RETURN_IF_ERROR(copies->key_.Open());
  RETURN_IF_ERROR(copies->Refresh());
  copies->thread_ = std::thread([raw = copies.get()] { raw->Run(); });
  return copies;
}

CertificateCopies::~CertificateCopies() {
  {
    const base::MutexLock lock(mutex_);
    stops_ = true;
    stops_changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
  for (const Copy* copy : {&certificate_, &key_})
    if (copy->fd >= 0) ::close(copy->fd);
}

Status CertificateCopies::Copy::Open() {
  fd = ::memfd_create("certificate", MFD_CLOEXEC);
  return fd >= 0 ? OkStatus() : base::ErrnoStatus(source, "copy into memory", errno);
}

void CertificateCopies::Copy::Write(std::string fresh) {
  if (fresh.size() < text.size()) fresh.resize(text.size(), '\n');
  if (fresh == text) return;
  const ssize_t written = ::pwrite(fd, fresh.data(), fresh.size(), 0);
  if (written == static_cast<ssize_t>(fresh.size())) text = std::move(fresh);
}

Status CertificateCopies::Refresh() {
  ASSIGN_OR_RETURN(std::string certificate, base::ReadFileToString(certificate_.source, kBytesMax));
  ASSIGN_OR_RETURN(std::string key, base::ReadFileToString(key_.source, kBytesMax));
  if (!IsComplete(certificate) || !IsComplete(key))
    return base::InvalidArgument(certificate_.source, " or ", key_.source, " is not complete PEM");
  // gRPC loads them at a handshake, and while it cannot, no client gets one.
  if (!server::BelongTogether(certificate, key))
    return base::InvalidArgument(certificate_.source, " and ", key_.source,
                                 " are no certificate and its key");
  certificate_.Write(std::move(certificate));
  key_.Write(std::move(key));
  return OkStatus();
}

void CertificateCopies::Run() {
  base::MutexLock lock(mutex_);
  while (!stops_) {
    stops_changed_.WaitUntil(mutex_, std::chrono::steady_clock::now() + std::chrono::seconds(1));
    if (!stops_) (void)Refresh();  // HTTP's side says what is wrong with the files
  }
}

}  // namespace thermocline::rpc
