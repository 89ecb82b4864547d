#include "engine/base/json_cache.h"

#include <cstdlib>
#include <filesystem>

#include "engine/base/file.h"
#include "engine/base/hash.h"
#include "engine/base/log.h"

namespace thermocline::base {
namespace {

std::string CacheFolder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache != nullptr && cache[0] == '/') return cache;
  return home != nullptr && home[0] == '/' ? StrCat(home, "/.cache") : "";
}

Result<Json> ReadFor(const std::string& path, const std::string& key) {
  ASSIGN_OR_RETURN(const std::string text, ReadFileToString(path, 1 << 20));
  ASSIGN_OR_RETURN(Json json, ParseJson(text));
  const Json* of = json.Find("key");
  if (of == nullptr || !of->is_string() || of->as_string() != key)
    return DataLoss("it is of another machine or device");
  return json;
}

}  // namespace

JsonCache::JsonCache(std::string_view kind, std::string key) : key_(std::move(key)) {
  const std::string folder = CacheFolder();
  if (folder.empty()) return;
  Hasher hasher;
  hasher.Add(key_);
  path_ = StrCat(folder, "/thermocline/", kind, "/", hasher.Digest().Hex(), ".json");
}

std::optional<Json> JsonCache::Read() const {
  if (path_.empty() || !PathExists(path_)) return std::nullopt;
  auto json = ReadFor(path_, key_);
  if (json.ok()) return *std::move(json);
  LogWarning(path_, ": ", json.status().message(), "; it is measured anew");
  return std::nullopt;
}

Status JsonCache::Write(Json json) const {
  if (path_.empty()) return FailedPrecondition("no $XDG_CACHE_HOME and no $HOME");
  std::error_code error;
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  std::filesystem::create_directories(folder, error);
  if (error) return Unavailable(folder, ": create: ", error.message());
  json.Set("key", key_);
  ASSIGN_OR_RETURN(const auto file, FileWriter::Create(path_));
  RETURN_IF_ERROR(file->Append(StrCat(json.Dump(1), "\n")));
  return file->Commit();
}

}  // namespace thermocline::base
