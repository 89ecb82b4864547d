#include "engine/hub/model_name.h"

#include <algorithm>
#include <filesystem>

#include "engine/base/bytes.h"
#include "engine/hub/folders.h"

namespace thermocline::hub {
namespace {

constexpr std::size_t kPartBytesMax = 96;  // the hub's own limit for a repository's name

Status Malformed(const std::string& text) {
  return base::InvalidArgument(
      "'", text,
      "' is no name of a model to fetch: write hf:OWNER/REPO[:QUANT], ollama:MODEL[:TAG], or the "
      "http(s) address of a .gguf file");
}

// Letters, digits, dots, dashes and underscores; it begins with a letter, a digit or "_".
bool IsPart(std::string_view text) {
  const auto allowed = [](char c) {
    const char lower = base::ToLower(c);
    return (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_';
  };
  return !text.empty() && text.size() <= kPartBytesMax && text.front() != '.' &&
         text.front() != '-' && text.find("..") == std::string_view::npos &&
         std::all_of(text.begin(), text.end(), allowed);
}

bool RemovePrefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// Returns the text before `separator`, and leaves in `text` what follows it.
std::string_view TakeUntil(std::string_view& text, char separator) {
  const std::size_t at = std::min(text.find(separator), text.size());
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return taken;
}

// OWNER/REPO[:QUANT].
bool ParseRepo(std::string_view rest, ModelName& name) {
  const std::string_view repo = TakeUntil(rest, ':');
  const std::size_t slash = repo.find('/');
  if (slash == std::string_view::npos || !IsPart(repo.substr(0, slash)) ||
      !IsPart(repo.substr(slash + 1))) {
    return false;
  }
  name.repo = repo;
  name.quant = rest;
  // "--" stands for "/" in the cache's folders.
  return repo.find("--") == std::string_view::npos && (rest.empty() || IsPlainPath(rest));
}

// OWNER/REPO[:QUANT], OWNER/REPO/tree/REVISION, OWNER/REPO/{blob,resolve}/REVISION/FILE.
bool ParseHubPath(std::string_view rest, ModelName& name) {
  rest = rest.substr(0, rest.find_first_of("?#"));
  std::string_view path = rest;
  const std::string_view owner = TakeUntil(path, '/'), name_of_repo = TakeUntil(path, '/');
  const std::string repo = StrCat(owner, "/", name_of_repo);
  if (!ParseRepo(repo, name)) return false;
  if (path.empty()) return true;
  const std::string_view kind = TakeUntil(path, '/');
  name.revision = TakeUntil(path, '/');
  name.quant = path;
  if (!IsPart(name.revision)) return false;
  if (kind == "tree") return path.empty();
  return (kind == "blob" || kind == "resolve") && IsPlainPath(path);
}

// [HOST/][OWNER/]MODEL[:TAG].
bool ParseRegistryName(std::string_view rest, ModelName& name) {
  name.kind = ModelName::Kind::kRegistry;
  if (const std::size_t colon = rest.rfind(':');
      colon != std::string_view::npos && rest.find('/', colon) == std::string_view::npos) {
    name.tag = rest.substr(colon + 1);
    rest = rest.substr(0, colon);
  }
  const auto slashes = std::count(rest.begin(), rest.end(), '/');
  if (slashes > 2) return false;
  if (slashes == 2) name.host = TakeUntil(rest, '/');
  if (slashes >= 1) name.owner = TakeUntil(rest, '/');
  name.model = rest;
  std::string_view port = name.host;
  const std::string_view host = TakeUntil(port, ':');
  const bool numeric =
      std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; });
  return IsPart(host) && numeric && IsPart(name.owner) && IsPart(name.model) && IsPart(name.tag);
}

bool ParseAddress(const std::string& text, ModelName& name) {
  name.kind = ModelName::Kind::kAddress;
  name.address = text;
  const auto printable = [](char c) { return base::ByteOf(c) > 0x20 && base::ByteOf(c) < 0x7F; };
  const std::string_view path = std::string_view(text).substr(0, text.find_first_of("?#"));
  return std::all_of(text.begin(), text.end(), printable) && path.ends_with(".gguf") &&
         IsPlainPath(name.Shown() + ".gguf");
}

bool Parse(const std::string& text, ModelName& name) {
  std::string_view rest = text;
  const std::string endpoint = HubEndpoint() + "/";
  for (const std::string_view hub :
       {std::string_view(endpoint), std::string_view("https://huggingface.co/"),
        std::string_view("https://hf.co/"), std::string_view("hf.co/"),
        std::string_view("huggingface.co/")}) {
    if (RemovePrefix(rest, hub)) return ParseHubPath(rest, name);
  }
  if (rest.starts_with("https://") || rest.starts_with("http://")) return ParseAddress(text, name);
  if (RemovePrefix(rest, "hf:")) return ParseRepo(rest, name);
  if (RemovePrefix(rest, "ollama:")) return ParseRegistryName(rest, name);
  if (rest.find('/') != std::string_view::npos) return ParseRepo(rest, name);
  return !rest.ends_with(".gguf") && !rest.ends_with(".bin") && ParseRegistryName(rest, name);
}

}  // namespace

std::string ModelName::Shown() const {
  if (kind == Kind::kHub) return StrCat(repo, quant.empty() ? "" : ":", quant);
  if (kind == Kind::kAddress)
    return std::filesystem::path(address.substr(0, address.find_first_of("?#"))).stem().string();
  const bool known = host == "registry.ollama.ai";
  const bool short_form = known && owner == "library";
  return StrCat(known ? "" : host + "/", short_form ? "" : owner + "/", model, ":", tag);
}

Result<ModelName> ParseModelName(const std::string& text) {
  ModelName name;
  if (!Parse(text, name)) return Malformed(text);
  return name;
}

bool IsPlainPath(std::string_view path) {
  if (path.empty() || path.size() > 1024 || path.ends_with('/')) return false;
  const auto bad = [](char c) { return base::ByteOf(c) < 0x20 || c == 0x7F || c == '\\'; };
  if (std::any_of(path.begin(), path.end(), bad)) return false;
  while (!path.empty()) {
    const std::string_view part = TakeUntil(path, '/');
    if (part.empty() || part == "." || part == ".." || part.size() > 255) return false;
  }
  return true;
}

bool IsHex(std::string_view text, std::size_t digits) {
  return text.size() == digits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace thermocline::hub
