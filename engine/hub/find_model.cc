#include "engine/hub/find_model.h"

#include <algorithm>
#include <filesystem>

#include "engine/base/file.h"
#include "engine/hub/choose_files.h"
#include "engine/hub/folders.h"
#include "engine/hub/scan.h"

namespace thermocline::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kSmallBytesMax = 16 << 20;

Status NotHere(const ModelName& name) {
  return base::NotFound(name.Shown(), " is not on this machine");
}

Result<std::string> SnapshotOf(const ModelName& name) {
  const std::string folder = RepoFolder(name.repo);
  std::string commit = name.revision;
  if (const auto ref = base::ReadFileToString(folder + "/refs/" + name.revision, 256); ref.ok())
    commit = ref->substr(0, ref->find_first_of(" \r\n"));
  const std::string path = folder + "/snapshots/" + commit;
  if (!IsPlainPath(commit) || !base::IsDirectory(path)) return NotHere(name);
  return path;
}

// A folder is complete if it has all files that model.safetensors.index.json names.
bool HasAllShards(const std::string& folder) {
  const auto text =
      base::ReadFileToString(folder + "/model.safetensors.index.json", kSmallBytesMax);
  if (!text.ok()) return true;
  const auto index = base::ParseJson(*text);
  if (!index.ok()) return false;
  const Json* map = index->Find("weight_map");
  if (map == nullptr || !map->is_object()) return false;
  const auto& members = map->as_object();
  return std::all_of(members.begin(), members.end(), [&](const Json::Member& member) {
    return member.second.is_string() && base::PathExists(folder + "/" + member.second.as_string());
  });
}

Result<std::string> FindInHub(const ModelName& name) {
  ASSIGN_OR_RETURN(const std::string snapshot, SnapshotOf(name));
  std::vector<std::string> paths;
  for (const std::string& path : FilesBelow(snapshot))
    paths.push_back(path.substr(snapshot.size() + 1));
  const auto files = ChooseFiles(paths, name.quant, name.repo);
  if (!files.ok()) return NotHere(name);
  if (files->back() != "config.json") return snapshot + "/" + files->front();
  if (!HasAllShards(snapshot)) return NotHere(name);
  return snapshot;
}

Result<std::string> FindInStores(const ModelName& name) {
  for (const std::string& store : OllamaStores()) {
    const std::string path = ManifestPath(store, name);
    const auto text = base::ReadFileToString(path, kSmallBytesMax);
    if (!text.ok()) continue;
    ASSIGN_OR_RETURN(const Json manifest, base::ParseJson(*text));
    ASSIGN_OR_RETURN(const Json layer, ModelLayer(manifest, path));
    const std::string blob = BlobPath(store, layer.Find("digest")->as_string());
    std::error_code error;
    const auto size = fs::file_size(blob, error);
    if (!error && static_cast<std::int64_t>(size) == layer.Find("size")->as_int()) return blob;
  }
  return NotHere(name);
}

Result<std::string> FindAddress(const ModelName& name) {
  const std::string first = StrCat(AddressFolder(name.address), "/", name.Shown(), ".gguf");
  for (const std::string& part : PartsOf(first))
    if (!base::PathExists(part)) return NotHere(name);
  return first;
}

}  // namespace

Result<std::string> FindModel(const ModelName& name) {
  switch (name.kind) {
    case ModelName::Kind::kHub:
      return FindInHub(name);
    case ModelName::Kind::kRegistry:
      return FindInStores(name);
    case ModelName::Kind::kAddress:
      break;
  }
  return FindAddress(name);
}

std::string LocalPath(const std::string& text) {
  if (base::PathExists(text)) return text;
  const auto name = ParseModelName(text);
  const auto path = name.ok() ? FindModel(*name) : name.status();
  return path.ok() ? *path : "";
}

Result<Json> ModelLayer(const Json& manifest, const std::string& where) {
  const Json* layers = manifest.Find("layers");
  if (layers == nullptr || !layers->is_array())
    return base::InvalidArgument(where, ": the manifest has no layers");
  for (const Json& layer : layers->as_array()) {
    const Json *type = layer.Find("mediaType"), *digest = layer.Find("digest"),
               *size = layer.Find("size");
    if (type == nullptr || !type->is_string() ||
        type->as_string() != "application/vnd.ollama.image.model")
      continue;
    if (digest == nullptr || !digest->is_string() || BlobPath("", digest->as_string()).empty() ||
        size == nullptr || !size->is_int() || size->as_int() <= 0) {
      return base::InvalidArgument(where,
                                   ": the manifest's model layer has no sha256 digest and size");
    }
    return layer;
  }
  return base::Unimplemented(where,
                             ": has no GGUF layer; models as safetensors for MLX, and names that "
                             "only Ollama's servers run, cannot be served here");
}

std::string BlobPath(const std::string& store, const std::string& digest) {
  if (!digest.starts_with("sha256:") || !IsHex(digest.substr(7), 64)) return "";
  return StrCat(store, "/blobs/sha256-", digest.substr(7));
}

std::string ServedName(const std::string& path) {
  if (!base::PathExists(path)) {
    if (const auto name = ParseModelName(path); name.ok() && FindModel(*name).ok())
      return name->Shown();
  }
  const fs::path file(path);
  if (const std::string blob = file.filename().string();
      blob.starts_with("sha256-") && file.parent_path().filename() == "blobs") {
    // Only of known stores: a folder that looks like one may have any number of manifests.
    const std::string store = file.parent_path().parent_path().string();
    const std::vector<std::string> stores = OllamaStores();
    if (std::find(stores.begin(), stores.end(), store) != stores.end()) {
      for (const FoundModel& found : ModelsInStore(store))
        if (fs::path(found.path).filename() == blob) return found.name;
    }
  }
  // A folder such as Qwen2.5-1.5B has no ending.
  const fs::path named = file.has_filename() ? file.filename() : file.parent_path().filename();
  const bool has_ending = named.extension() == ".gguf" || named.extension() == ".bin";
  return (has_ending ? named.stem() : named).string();
}

}  // namespace thermocline::hub
