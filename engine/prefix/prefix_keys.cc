#include "engine/prefix/prefix_keys.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/posix_error.h"
#include "engine/base/random.h"
#include "engine/base/sha256.h"
#include "kernels/attention.h"

namespace thermocline::prefix {
namespace {

constexpr std::size_t kSecretBytes = 32;

store::SlotKey Link(const store::SlotKey& before, std::string_view kind,
                    std::span<const int> tokens) {
  static_assert(sizeof(int) == 4);
  base::Sha256 hash;
  hash.Add(before);
  hash.Add(kind);
  hash.Add(std::as_bytes(tokens));
  return hash.Digest();
}

// A text with its length before it, so that two texts in a row cannot be read as two others.
void AddText(base::Sha256& hash, std::string_view text) {
  const std::uint64_t length = text.size();
  hash.Add(std::as_bytes(std::span(&length, 1)));
  hash.Add(text);
}

Result<std::string> ReadSecret(const std::string& path) {
  ASSIGN_OR_RETURN(std::string secret, base::ReadFileToString(path, kSecretBytes + 1));
  if (secret.size() == kSecretBytes) return secret;
  return base::DataLoss(path, ": has ", secret.size(), " bytes instead of ", kSecretBytes,
                        "; a new one is made, and prefixes stored so far are computed again");
}

}  // namespace

store::SlotKey PrefixKeys::Root(std::string_view owner) const {
  base::Sha256 hash;
  AddText(hash, secret_);
  AddText(hash, fingerprint_);
  AddText(hash, owner);
  return hash.Digest();
}

store::SlotKey PrefixKeys::Block(const store::SlotKey& before, std::span<const int> tokens) {
  return Link(before, "k", tokens);
}

store::SlotKey PrefixKeys::State(const store::SlotKey& before, std::span<const int> tokens) {
  return Link(before, "s", tokens);
}

std::vector<store::SlotKey> PrefixKeys::Chain(std::string_view owner,
                                              std::span<const int> tokens) const {
  std::vector<store::SlotKey> chain = {Root(owner)};
  constexpr std::size_t kTokens = kernels::kKvBlock;
  chain.reserve(tokens.size() / kTokens + 1);
  for (std::size_t at = 0; at + kTokens <= tokens.size(); at += kTokens)
    chain.push_back(Block(chain.back(), tokens.subspan(at, kTokens)));
  return chain;
}

std::string PrefixKeys::FileName() const {
  constexpr char kDigits[] = "0123456789abcdef";
  base::Sha256 hash;
  AddText(hash, secret_);
  AddText(hash, fingerprint_);
  std::string name;
  const base::Digest256 digest = hash.Digest();
  for (const std::byte byte : std::span(digest).first(8)) {
    name.push_back(kDigits[std::to_integer<int>(byte) >> 4]);
    name.push_back(kDigits[std::to_integer<int>(byte) & 15]);
  }
  return name;
}

Result<std::string> FolderSecret(const std::string& folder) {
  const std::string path = folder + "/secret";
  ASSIGN_OR_RETURN(const auto lock, base::FolderLock::Of(path));
  if (base::PathExists(path)) {
    auto read = ReadSecret(path);
    if (read.status().code() != StatusCode::kDataLoss) return read;
    base::LogWarning(read.status().message());
  }
  std::string secret;
  while (secret.size() < kSecretBytes) {
    const std::uint64_t bits = base::RandomBits64();
    secret.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
  }
  const std::string temporary = path + ".new";
  const int fd =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return base::ErrnoStatus(temporary, "open", errno);
  const bool written =
      ::write(fd, secret.data(), secret.size()) == std::ssize(secret) && ::fsync(fd) == 0;
  const int error = errno;
  ::close(fd);
  if (!written) return base::ErrnoStatus(temporary, "write", error);
  if (::rename(temporary.c_str(), path.c_str()) != 0)
    return base::ErrnoStatus(path, "rename", errno);
  return secret;
}

}  // namespace thermocline::prefix
