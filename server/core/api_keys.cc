#include "server/core/api_keys.h"

#include <openssl/crypto.h>
#include <strings.h>

#include <algorithm>

#include "engine/api/request.h"
#include "engine/base/file.h"
#include "server/core/server_config.h"

namespace thermocline::server {
namespace {

constexpr std::size_t kNameBytesMax = 64;
constexpr std::string_view kHexDigits = "0123456789abcdef";

bool IsName(std::string_view text) {
  return !text.empty() && text.size() <= kNameBytesMax &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == '-';
         });
}

// Removes the text before the next ':' and the ':' from `rest`; returns the text.
std::string_view TakeField(std::string_view& rest) {
  const std::size_t colon = rest.find(':');
  const std::string_view field = rest.substr(0, colon);
  rest = colon == std::string_view::npos ? std::string_view() : rest.substr(colon + 1);
  return field;
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
}

Status NameError() {
  return base::InvalidArgument("a name has 1 to ", kNameBytesMax,
                               " letters, digits, '.', '_' and '-'");
}

}  // namespace

std::optional<std::string_view> BearerKey(std::string_view authorization) {
  constexpr std::string_view kScheme = "Bearer ";
  if (authorization.size() < kScheme.size() ||
      ::strncasecmp(authorization.data(), kScheme.data(), kScheme.size()) != 0)
    return std::nullopt;
  const std::size_t begin = authorization.find_first_not_of(' ', kScheme.size());
  if (begin == std::string_view::npos) return std::nullopt;
  return authorization.substr(begin);
}

Result<ApiKeys::Entry> ApiKeys::ParseLine(std::string_view line) {
  Entry entry{};
  entry.identity.name = TakeField(line);
  if (!IsName(entry.identity.name)) return NameError();
  const std::string_view hex = TakeField(line);
  if (hex.size() != 2 * entry.digest.size())
    return base::InvalidArgument("expected NAME:SHA256, with 64 hexadecimal digits");
  for (std::size_t i = 0; i < hex.size(); ++i) {
    const char lower = hex[i] >= 'A' && hex[i] <= 'F' ? static_cast<char>(hex[i] + 32) : hex[i];
    const std::size_t digit = kHexDigits.find(lower);
    if (digit == std::string_view::npos)
      return base::InvalidArgument("expected NAME:SHA256, with 64 hexadecimal digits");
    entry.digest[i / 2] = entry.digest[i / 2] << 4 | std::byte(digit);
  }
  constexpr std::string_view kPriority = "priority=", kModels = "models=";
  while (!line.empty()) {
    const std::string_view option = TakeField(line);
    if (option.starts_with(kModels)) {
      entry.identity.models.names = SplitList(std::string(option.substr(kModels.size())));
      if (!entry.identity.models.names.empty()) continue;
      return base::InvalidArgument("models= needs names of models, separated by commas");
    }
    const auto priority = option.starts_with(kPriority)
                              ? base::ParseNumber<int>(option.substr(kPriority.size()))
                              : std::nullopt;
    const bool in_range = priority >= kPriorityMin && priority <= kPriorityMax;
    if (option != "admin" && !in_range) {
      return base::InvalidArgument(
          "an option is admin, models=NAME,NAME, or priority=N with N in [", kPriorityMin, ", ",
          kPriorityMax, "]");
    }
    if (in_range) entry.identity.priority_max = *priority;
    entry.identity.admin = entry.identity.admin || option == "admin";
  }
  return entry;
}

Status ApiKeys::Add(std::string_view line) {
  ASSIGN_OR_RETURN(Entry entry, ParseLine(line));
  for (const Entry& other : entries_) {
    if (other.identity.name == entry.identity.name)
      return base::InvalidArgument("the name ", entry.identity.name, " comes twice");
    if (other.digest == entry.digest)
      return base::InvalidArgument(entry.identity.name, " has the key of ", other.identity.name);
  }
  entries_.push_back(std::move(entry));
  return OkStatus();
}

Result<ApiKeys> ApiKeys::Parse(std::string_view text, const std::string& path) {
  ApiKeys keys;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    const std::string_view line = Trim(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (line.empty() || line.starts_with('#')) continue;
    // The message omits the line, which may hold a key that was never hashed.
    if (Status added = keys.Add(line); !added.ok())
      return added.Annotate(StrCat(path, ":", number));
  }
  if (keys.empty()) return base::InvalidArgument(path, ": holds no key, so nobody could come in");
  return keys;
}

Result<ApiKeys> ApiKeys::Load(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, base::ReadFileToString(path, 1 << 20));
  return Parse(text, path);
}

Result<std::string> ApiKeys::MakeLine(std::string_view name, std::string_view key) {
  if (!IsName(name)) return NameError();
  if (key.size() < kKeyBytesMin || key.size() > kKeyBytesMax) {
    return base::InvalidArgument("a key has ", kKeyBytesMin, " to ", kKeyBytesMax,
                                 " characters; `openssl rand -hex 24` makes one");
  }
  if (!std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c < 0x7F; }))
    return base::InvalidArgument("a key has printable ASCII characters only, and no blanks");
  return StrCat(name, ":", base::HexOf(base::Sha256Of(key)));
}

std::vector<std::string> ApiKeys::Beyond(const ApiKeys& before) const {
  std::vector<std::string> out;
  for (const Entry& entry : entries_) {
    const Identity& own = entry.identity;
    const bool had =
        std::any_of(before.entries_.begin(), before.entries_.end(), [&](const Entry& other) {
          return other.digest == entry.digest && other.identity.name == own.name &&
                 (other.identity.admin || !own.admin) &&
                 other.identity.priority_max >= own.priority_max &&
                 other.identity.models.Cover(own.models);
        });
    if (!had) out.push_back(own.name);
  }
  return out;
}

std::optional<Identity> ApiKeys::Check(std::string_view key) const {
  if (key.size() > kKeyBytesMax) return std::nullopt;
  const base::Digest256 digest = base::Sha256Of(key);
  // Every entry is compared in full, so that the time does not reveal how close a guess was.
  const Entry* found = nullptr;
  for (const Entry& entry : entries_) {
    const bool same = CRYPTO_memcmp(entry.digest.data(), digest.data(), digest.size()) == 0;
    found = same ? &entry : found;
  }
  if (found == nullptr) return std::nullopt;
  return found->identity;
}

}  // namespace thermocline::server
