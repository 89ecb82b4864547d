#include "tools/fetch/download.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/posix_error.h"
#include "engine/base/sha256.h"
#include "engine/base/strings.h"
#include "tools/fetch/http_client.h"

namespace thermocline::tools {
namespace {

namespace fs = std::filesystem;

constexpr auto kLineInterval = std::chrono::seconds(10);
constexpr auto kEventInterval = std::chrono::milliseconds(250);

std::string HexOf(const base::Digest256& digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const std::byte byte : digest) {
    out += kDigits[std::to_integer<int>(byte) >> 4];
    out += kDigits[std::to_integer<int>(byte) & 15];
  }
  return out;
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

// Opens a file that is ours alone: a link in its place is an error.
int OpenOwn(const std::string& path) {
  return ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
}

// PATH.part while a file is fetched. Thread-compatible.
class Part {
 public:
  Part(const Download& download, FetchProgress& progress)
      : download_(download),
        progress_(progress),
        path_(download.path + ".part"),
        file_(OpenOwn(path_)),
        bytes_(download.bytes) {}

  // Hashes the bytes that an earlier run left. Without a digest they need the ETag they came with.
  Status Open() {
    struct stat info {};
    if (file_.get() < 0 || ::fstat(file_.get(), &info) != 0) return Fault("open");
    if (!S_ISREG(info.st_mode) || info.st_nlink != 1)
      return base::FailedPrecondition(path_, ": is no plain file of one name; remove it");
    if (const auto etag = base::ReadFileToString(path_ + ".etag", 4096); etag.ok()) etag_ = *etag;
    const bool usable = !download_.sha256.empty() || !etag_.empty();
    if (!usable || (bytes_ >= 0 && info.st_size > bytes_)) return Restart();
    return HashFirst(info.st_size);
  }

  // One request for what is missing.
  Status Continue() {
    if (bytes_ >= 0 && written_ == bytes_) return OkStatus();
    HttpRequest request{.url = download_.url, .token = download_.token};
    const std::int64_t begin = written_;
    if (begin > 0) {
      request.headers.push_back(StrCat("Range: bytes=", begin, "-"));
      // A digest tells more than the ETag, which differs between the servers of one hub.
      if (download_.sha256.empty()) request.headers.push_back("If-Range: " + etag_);
    }
    bool first = true;
    ASSIGN_OR_RETURN(
        const HttpResponse response,
        HttpGet(request, [&](const HttpResponse& head, std::span<const std::byte> bytes) -> Status {
          if (first) RETURN_IF_ERROR(BeginBody(head, begin));
          first = false;
          return Append(bytes);
        }));
    RETURN_IF_ERROR(CheckTransient(response));
    if (response.status == 416) {
      RETURN_IF_ERROR(Restart());
      return base::Unavailable("the server has fewer bytes than an earlier run fetched");
    }
    if (response.status != 200 && response.status != 206)
      return AccessStatus(response.status, download_.label, download_.page,
                          !download_.token.empty());
    if (first) return base::Unavailable("the answer is empty");
    if (written_ < bytes_)
      return base::Unavailable("the connection ended after ", written_, " of ", bytes_, " bytes");
    return OkStatus();
  }

  bool HasDigest() const {
    return download_.sha256.empty() || HexOf(hash_->Digest()) == download_.sha256;
  }
  std::int64_t written() const { return written_; }
  std::string digest() const { return HexOf(hash_->Digest()); }

  // Drops what is written.
  Status Restart() {
    progress_.Add(-written_in_run_);
    progress_.Found(written_in_run_ - written_);
    written_ = written_in_run_ = 0;
    hash_ = std::make_unique<base::Sha256>();
    etag_.clear();
    ::unlink((path_ + ".etag").c_str());
    return ::ftruncate(file_.get(), 0) == 0 ? OkStatus() : Fault("truncate");
  }
  void Discard() {
    ::unlink(path_.c_str());
    ::unlink((path_ + ".etag").c_str());
  }
  Status Commit() {
    if (::fsync(file_.get()) != 0) return Fault("write");
    if (::rename(path_.c_str(), download_.path.c_str()) != 0) return Fault("rename");
    ::unlink((path_ + ".etag").c_str());
    return base::SyncFolderOf(download_.path);
  }

 private:
  Status Fault(const char* action) const { return base::ErrnoStatus(path_, action, errno); }

  Status HashFirst(std::int64_t bytes) {
    std::vector<std::byte> buffer(1 << 20);
    while (written_ < bytes) {
      const ssize_t n = ::pread(file_.get(), buffer.data(), buffer.size(), written_);
      if (n < 0) return Fault("read");
      if (n == 0) break;
      hash_->Add(std::span(buffer).first(static_cast<std::size_t>(n)));
      written_ += n;
    }
    progress_.Found(written_);
    return OkStatus();
  }

  // Compares an answer's head with the request for the bytes from `begin` on.
  Status BeginBody(const HttpResponse& head, std::int64_t begin) {
    std::string_view length =
        head.headers.contains("content-length") ? head.headers.at("content-length") : "";
    std::optional<std::int64_t> total = base::ParseNumber<std::int64_t>(length);
    if (head.status == 206) {
      const std::string range = head.Header("content-range");
      if (begin == 0 || !range.starts_with(StrCat("bytes ", begin, "-")))
        return base::DataLoss(download_.label, ": the server sent other bytes than asked for");
      if (total.has_value()) *total += begin;
    } else if (begin > 0) {
      RETURN_IF_ERROR(Restart());  // the server has another file, or cannot resume
    }
    if (bytes_ >= 0 && total.has_value() && *total != bytes_)
      return base::DataLoss(download_.label, ": the server's file has ", *total, " bytes and not ",
                            bytes_);
    if (bytes_ < 0) {
      if (!total.has_value() || *total <= 0)
        return base::FailedPrecondition(
            download_.label,
            ": the server does not say the file's size (Content-Length), so a complete file cannot be told from a half");
      bytes_ = *total;
      progress_.AddTotal(bytes_);
      RETURN_IF_ERROR(CheckFreeSpace(fs::path(path_).parent_path().string(), bytes_ - written_));
    }
    const std::string etag = head.Header("etag");  // a weak one cannot resume
    if (etag.size() < 2 || etag.size() > 1000 || !etag.starts_with('"') || etag == etag_)
      return OkStatus();
    etag_ = etag;
    return WriteSmallFile(path_ + ".etag", etag);
  }

  Status Append(std::span<const std::byte> bytes) {
    const auto size = static_cast<std::int64_t>(bytes.size());
    if (size > bytes_ - written_)
      return base::DataLoss(download_.label, ": the server sends more than the ", bytes_,
                            " bytes it promised");
    hash_->Add(bytes);
    while (!bytes.empty()) {
      const ssize_t n = ::pwrite(file_.get(), bytes.data(), bytes.size(), written_);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return WriteFault();
      bytes = bytes.subspan(static_cast<std::size_t>(n));
      written_ += n, written_in_run_ += n;
      progress_.Add(n);
    }
    return OkStatus();
  }

  // After a failed write the hash covers bytes that the file lacks, so this run ends.
  Status WriteFault() const {
    const Status fault = Fault("write");
    if (errno != ENOSPC && errno != EDQUOT) return base::FailedPrecondition(fault.message());
    return base::ResourceExhausted(path_, ": the disk is full after ", base::HumanBytes(written_),
                                   " of ", base::HumanBytes(bytes_),
                                   "; free space, and the same command goes on from there");
  }

  const Download& download_;
  FetchProgress& progress_;
  const std::string path_;
  const Descriptor file_;
  std::unique_ptr<base::Sha256> hash_ = std::make_unique<base::Sha256>();
  std::string etag_ = {};
  std::int64_t bytes_, written_ = 0, written_in_run_ = 0;
};

// Repeats requests until the part is complete. Bytes of a server that breaks its promise are
// dropped.
Status Complete(Part& part, const Download& download) {
  const auto attempt = [&] { return part.Continue(); };
  const Status status = WithRetries(download.label, attempt, [&] { return part.written(); });
  if (status.code() == StatusCode::kDataLoss) part.Discard();
  return status;
}

Status FetchPart(const Download& download, FetchProgress& progress) {
  Part part(download, progress);
  RETURN_IF_ERROR(part.Open());
  const bool resumed = part.written() > 0;
  RETURN_IF_ERROR(Complete(part, download));
  if (!part.HasDigest() && resumed) {  // the bytes of the earlier run may be the wrong ones
    RETURN_IF_ERROR(part.Restart());
    RETURN_IF_ERROR(Complete(part, download));
  }
  if (part.HasDigest()) return part.Commit();
  part.Discard();
  return base::DataLoss(download.label, ": the bytes that arrived have the SHA-256 ", part.digest(),
                        " and not ", download.sha256,
                        "; they are deleted. Try again; if it happens again, a proxy or a mirror "
                        "changes the file");
}

bool IsComplete(const Download& download) {
  std::error_code error;
  const auto bytes = fs::file_size(download.path, error);
  return !error && (download.bytes < 0 || static_cast<std::int64_t>(bytes) == download.bytes);
}

}  // namespace

void FetchProgress::Begin(const std::string& label, const std::string& sha256) {
  label_ = label;
  sha256_ = sha256;
  Tell();
}

void FetchProgress::Tell() {
  if (listener_) listener_({label_, sha256_, done_, total_});
}

void FetchProgress::Add(std::int64_t bytes) {
  done_ += bytes;
  if (bytes > 0) fetched_ += bytes;
  if (listener_) {
    const auto now = std::chrono::steady_clock::now();
    if (done_ < total_ && now - printed_ < kEventInterval) return;
    printed_ = now;
    return Tell();
  }
  const double share = total_ > 0 ? static_cast<double>(done_) / static_cast<double>(total_) : 0;
  bar_.Show(share, label_);
  const auto now = std::chrono::steady_clock::now();
  if (::isatty(STDERR_FILENO) != 0 || now - printed_ < kLineInterval) return;
  printed_ = now;
  std::fprintf(stderr, "%s: %d%% of %s\n", base::EscapeControls(label_).c_str(),
               static_cast<int>(share * 100), base::HumanBytes(total_).c_str());
}

Status Fetch(const Download& download, FetchProgress& progress) {
  const Descriptor lock(OpenOwn(download.lock));
  if (lock.get() < 0) return base::ErrnoStatus(download.lock, "open", errno);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return base::ErrnoStatus(download.lock, "lock", errno);
    std::fprintf(stderr, "%s: another process fetches it; waiting\n",
                 base::EscapeControls(download.label).c_str());
    while (::flock(lock.get(), LOCK_EX) != 0)
      if (errno != EINTR) return base::ErrnoStatus(download.lock, "lock", errno);
  }
  if (IsComplete(download)) {
    progress.Found(std::max<std::int64_t>(download.bytes, 0));
    return OkStatus();
  }
  progress.Begin(download.label, download.sha256);
  return FetchPart(download, progress);
}

Status CheckFreeSpace(const std::string& folder, std::int64_t bytes) {
  std::error_code error;
  fs::path at = fs::absolute(folder, error);
  while (!fs::exists(at, error) && at.has_relative_path()) at = at.parent_path();
  const fs::space_info space = fs::space(at, error);
  if (error || bytes <= 0 || space.available >= static_cast<std::uintmax_t>(bytes))
    return OkStatus();
  return base::ResourceExhausted(
      at.string(), ": ", base::HumanBytes(bytes), " are to be fetched and ",
      base::HumanBytes(space.available),
      " are free; free space, or choose another disk (HF_HUB_CACHE, XDG_DATA_HOME)");
}

Status MakeFolders(const std::string& root, const std::string& path) {
  std::error_code error;
  fs::create_directories(root, error);
  if (error) return base::ErrnoStatus(root, "create", error.value());
  fs::path at = root;
  for (const fs::path& part : fs::path(path).parent_path()) {
    at /= part;
    if (fs::is_symlink(fs::symlink_status(at, error)))
      return base::FailedPrecondition(at.string(),
                                      ": is a link where a folder is expected; remove it");
    fs::create_directory(at, error);
    if (error) return base::ErrnoStatus(at.string(), "create", error.value());
  }
  return OkStatus();
}

Status WriteSmallFile(const std::string& path, const std::string& text) {
  ASSIGN_OR_RETURN(const auto writer, base::FileWriter::Create(path));
  RETURN_IF_ERROR(writer->Append(text));
  return writer->Commit();
}

Status AccessStatus(long status, const std::string& what, const std::string& page, bool has_token) {
  if (status == 401 && has_token)
    return base::Unauthenticated(
        what, ": the token is refused (401): set HF_TOKEN to a valid one, and ask for access at ",
        page);
  if (status == 401)
    return base::Unauthenticated(what,
                                 ": needs a token (401), or does not exist: accept its terms at ",
                                 page, " and set HF_TOKEN");
  if (status == 403)
    return base::PermissionDenied(what, ": access is denied (403): accept its terms at ", page,
                                  " with the account of HF_TOKEN");
  if (status == 404) return base::NotFound(what, ": does not exist (404); see ", page);
  return base::FailedPrecondition(what, ": the server answers ", status);
}

}  // namespace thermocline::tools
