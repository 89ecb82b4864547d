#include "server/chat/token_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "engine/base/hash.h"
#include "engine/base/index.h"
#include "engine/base/log.h"
#include "engine/base/posix_error.h"

namespace thermocline::chat {
namespace {

constexpr std::array<char, 4> kRecordMagic = {'T', 'C', 'A', '1'};
constexpr std::size_t kQueuedRecordsMax = 256, kQueuedTokensMax = 1 << 20;
constexpr std::uint64_t kLongerThanMemory = 4;  // times, before the file is replaced

struct RecordHead {
  std::array<char, 4> magic = kRecordMagic;
  std::uint32_t tokens = 0;
  base::Digest256 key{};
};

template <typename T>
void AppendBytes(std::string& out, const T* data, std::size_t count) {
  out.append(reinterpret_cast<const char*>(data), count * sizeof(T));
}

std::string BytesOfRecord(const base::Digest256& key, const std::vector<int>& tokens) {
  RecordHead head;
  head.tokens = static_cast<std::uint32_t>(tokens.size());
  head.key = key;
  std::string out;
  AppendBytes(out, &head, 1);
  AppendBytes(out, tokens.data(), tokens.size());
  const std::uint64_t checksum = base::HashOf(out).low;
  AppendBytes(out, &checksum, 1);
  return out;
}

Status WriteWhole(int fd, const std::string& path, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return base::ErrnoStatus(path, "write", written < 0 ? errno : ENOSPC);
    bytes.remove_prefix(written);
  }
  return OkStatus();
}

// Shorten leaves a far smaller file; a larger one is not ours, or has holes.
constexpr std::size_t kFileBytesMax = 8 * TokenMemory::kBytesMax;

// The file's first kFileBytesMax bytes.
Result<std::string> ReadWhole(int fd, const std::string& path) {
  std::string out;
  std::array<char, 64 << 10> piece;
  while (true) {
    if (out.size() >= kFileBytesMax) return out;
    const ssize_t got = ::pread(fd, piece.data(), piece.size(), static_cast<off_t>(out.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return base::ErrnoStatus(path, "read", errno);
    if (got == 0) return out;
    out.append(piece.data(), got);
  }
}

}  // namespace

TokenFile::TokenFile(std::string path, TokenMemory& memory, int fd)
    : path_(std::move(path)), memory_(memory), fd_(fd) {}

Result<std::unique_ptr<TokenFile>> TokenFile::Open(const std::string& path, TokenMemory& memory) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_APPEND, 0600);
  if (fd < 0) return base::ErrnoStatus(path, "open", errno);
  std::unique_ptr<TokenFile> file(new TokenFile(path, memory, fd));
  file->read_only_ = ::flock(fd, LOCK_EX | LOCK_NB) != 0;
  RETURN_IF_ERROR(file->Load());
  if (!file->read_only_) file->thread_ = std::thread([raw = file.get()] { raw->Main(); });
  return file;
}

TokenFile::~TokenFile() {
  {
    const base::MutexLock lock(mutex_);
    ends_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
  ::close(fd_);
}

Status TokenFile::Load() {
  ASSIGN_OR_RETURN(const std::string bytes, ReadWhole(fd_, path_));
  std::string_view rest = bytes;
  while (rest.size() >= sizeof(RecordHead)) {
    RecordHead head;
    std::memcpy(&head, rest.data(), sizeof(head));
    if (head.magic != kRecordMagic) break;
    const std::size_t text = sizeof(head) + std::size_t{head.tokens} * sizeof(int);
    std::uint64_t checksum = 0;
    if (rest.size() < text + sizeof(checksum)) break;
    std::memcpy(&checksum, rest.data() + text, sizeof(checksum));
    if (checksum != base::HashOf(rest.substr(0, text)).low) break;
    std::vector<int> tokens(head.tokens);
    std::memcpy(tokens.data(), rest.data() + sizeof(head), text - sizeof(head));
    memory_.Remember(head.key, std::move(tokens));
    rest.remove_prefix(text + sizeof(checksum));
  }
  bytes_ = bytes.size() - rest.size();
  if (rest.empty() || read_only_) return OkStatus();
  if (::ftruncate(fd_, static_cast<off_t>(bytes_)) != 0)
    return base::ErrnoStatus(path_, "shorten", errno);
  return OkStatus();
}

void TokenFile::Append(const base::Digest256& key, std::vector<int> tokens) {
  if (read_only_) return;
  const base::MutexLock lock(mutex_);
  if (queue_.size() >= kQueuedRecordsMax || queued_tokens_ + tokens.size() > kQueuedTokensMax)
    return;
  queued_tokens_ += tokens.size();
  queue_.push_back({.key = key, .tokens = std::move(tokens)});
  changed_.NotifyOne();
}

void TokenFile::Main() {
  bool told = false;
  base::MutexLock lock(mutex_);
  while (true) {
    if (queue_.empty() && ends_) return;
    if (queue_.empty()) {
      changed_.Wait(mutex_);
      continue;
    }
    const Record record = std::move(queue_.front());
    queue_.pop_front();
    queued_tokens_ -= record.tokens.size();
    lock.Unlock();
    const Status status = Write(record);
    if (!status.ok() && !std::exchange(told, true))
      base::LogWarning("answers' tokens are not kept on flash: ", status.message());
    lock.Lock();
  }
}

Status TokenFile::Write(const Record& record) {
  if (bytes_ > kLongerThanMemory * TokenMemory::kBytesMax) RETURN_IF_ERROR(Shorten());
  const std::string bytes = BytesOfRecord(record.key, record.tokens);
  Status status = WriteWhole(fd_, path_, bytes);
  if (status.ok()) {
    bytes_ += bytes.size();
    return status;
  }
  // A part of a record would hide the ones behind it.
  if (::ftruncate(fd_, static_cast<off_t>(bytes_)) != 0)
    return base::ErrnoStatus(path_, "shorten", errno);
  return status;
}

Status TokenFile::Shorten() {
  const std::string part = path_ + ".new";
  const int fd =
      ::open(part.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_APPEND, 0600);
  if (fd < 0) return base::ErrnoStatus(part, "open", errno);
  std::uint64_t bytes = 0;
  Status status =
      ::flock(fd, LOCK_EX | LOCK_NB) == 0 ? OkStatus() : base::ErrnoStatus(part, "lock", errno);
  for (const auto& [key, tokens] : memory_.Answers()) {
    if (!status.ok()) break;
    const std::string record = BytesOfRecord(key, *tokens);
    status = WriteWhole(fd, part, record);
    bytes += record.size();
  }
  if (status.ok() && ::rename(part.c_str(), path_.c_str()) != 0)
    status = base::ErrnoStatus(path_, "replace", errno);
  if (!status.ok()) {
    ::close(fd);
    ::unlink(part.c_str());
    return status;
  }
  ::close(std::exchange(fd_, fd));
  bytes_ = bytes;
  return OkStatus();
}

}  // namespace thermocline::chat
