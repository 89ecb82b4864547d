#include "engine/hub/remove_model.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/posix_error.h"
#include "engine/hub/choose_files.h"
#include "engine/hub/find_model.h"
#include "engine/hub/folders.h"
#include "engine/hub/scan.h"

namespace thermocline::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kManifestBytesMax = 16 << 20;

// Deletes files, and counts the bytes that this frees.
class Remover {
 public:
  Status RemoveFile(const std::string& path) {
    std::error_code error;
    const bool link = fs::is_symlink(fs::symlink_status(path, error));
    const auto size = link ? 0 : fs::file_size(path, error);
    if (error) return base::ErrnoStatus(path, "delete", error.value());
    fs::remove(path, error);
    if (error) return base::ErrnoStatus(path, "delete", error.value());
    bytes_ += static_cast<std::int64_t>(size);
    return OkStatus();
  }
  // Deletes empty folders from `folder` upwards, up to `top`, which stays.
  static void RemoveEmpty(fs::path folder, const fs::path& top) {
    std::error_code error;
    while (folder != top && folder.string().starts_with(top.string()) && fs::remove(folder, error))
      folder = folder.parent_path();
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t bytes_ = 0;
};

// The blobs that links below `snapshots` lead to.
std::set<std::string> LinkedBlobs(const std::string& snapshots) {
  std::set<std::string> blobs;
  for (const std::string& path : FilesBelow(snapshots)) {
    std::error_code error;
    blobs.insert(fs::canonical(path, error).string());
  }
  return blobs;
}

// Removes the links of a snapshot's model, then the blobs that no other link leads to.
Status RemoveFromHub(const std::string& repo, const std::string& path, Remover& remover) {
  const std::string folder = RepoFolder(repo), snapshots = folder + "/snapshots";
  const std::vector<std::string> files = base::IsDirectory(path) ? FilesBelow(path) : PartsOf(path);
  const std::set<std::string> before = LinkedBlobs(snapshots);
  for (const std::string& file : files) {
    RETURN_IF_ERROR(remover.RemoveFile(file));
    Remover::RemoveEmpty(fs::path(file).parent_path(), snapshots);
  }
  const std::set<std::string> after = LinkedBlobs(snapshots);
  for (const std::string& blob : before)
    if (!after.contains(blob) && base::PathExists(blob)) RETURN_IF_ERROR(remover.RemoveFile(blob));
  if (!after.empty()) return OkStatus();
  // Another file of the repository may be on its way: folders that are not empty stay.
  std::error_code error;
  for (const std::string& blob : FilesBelow(folder + "/blobs"))
    if (blob.ends_with(".etag")) fs::remove(blob, error);
  for (const char* inside : {"/snapshots", "/blobs"}) fs::remove(folder + inside, error);
  if (!base::PathExists(folder + "/blobs")) fs::remove_all(folder, error);  // refs are left
  return OkStatus();
}

std::set<std::string> BlobsOf(const std::string& store, const std::string& manifest) {
  std::set<std::string> blobs;
  const auto text = base::ReadFileToString(manifest, kManifestBytesMax);
  const auto json = text.ok() ? base::ParseJson(*text) : text.status();
  if (!json.ok()) return blobs;
  const auto add = [&](const Json* part) {
    const Json* digest = part == nullptr ? nullptr : part->Find("digest");
    if (digest != nullptr && digest->is_string())
      blobs.insert(BlobPath(store, digest->as_string()));
  };
  add(json->Find("config"));
  if (const Json* layers = json->Find("layers"); layers != nullptr && layers->is_array())
    for (const Json& layer : layers->as_array()) add(&layer);
  return blobs;
}

// Removes the model layer `blob`; with the manifest of that name and its other layers, if it is
// still that manifest's.
Status RemoveFromStore(const std::string& store, const ModelName& name, const std::string& model,
                       Remover& remover) {
  const std::string path = ManifestPath(store, name), manifests = store + "/manifests";
  std::set<std::string> own = BlobsOf(store, path);
  if (own.contains(model)) {
    RETURN_IF_ERROR(remover.RemoveFile(path));
    Remover::RemoveEmpty(fs::path(path).parent_path(), manifests);
  } else {
    own = {model};
  }
  std::set<std::string> others;
  for (const std::string& manifest : FilesBelow(manifests)) others.merge(BlobsOf(store, manifest));
  for (const std::string& blob : own) {
    if (others.contains(blob) || !base::PathExists(blob)) continue;
    RETURN_IF_ERROR(remover.RemoveFile(blob));
    std::error_code error;
    fs::remove(blob + ".lock", error);
  }
  return OkStatus();
}

// True if the file lies below `folder`, links of folders followed, and its path says so, too. The
// file itself may be a link.
bool LiesBelow(const std::string& path, const std::string& folder) {
  std::error_code error;
  const fs::path file(path);
  if (file != file.lexically_normal() || !path.starts_with(folder + "/")) return false;
  const fs::path real = fs::canonical(file.parent_path(), error),
                 top = fs::canonical(folder, error);
  const auto [end, rest] = std::mismatch(top.begin(), top.end(), real.begin(), real.end());
  return !error && end == top.end();
}

Status RemoveAddress(const std::string& path, Remover& remover) {
  for (const std::string& part : PartsOf(path)) RETURN_IF_ERROR(remover.RemoveFile(part));
  std::error_code error;
  fs::remove_all(fs::path(path).parent_path(), error);  // locks
  return OkStatus();
}

}  // namespace

Result<std::int64_t> RemoveModel(const ModelName& name) {
  ASSIGN_OR_RETURN(const std::string path, FindModel(name));
  return RemoveModelAt(name, path);
}

Result<std::int64_t> RemoveModelAt(const ModelName& name, const std::string& path) {
  Remover remover;
  if (!base::PathExists(path)) return remover.bytes();
  const std::string store = OwnStore() + "/ollama";
  switch (name.kind) {
    case ModelName::Kind::kHub:
      if (!LiesBelow(path, RepoFolder(name.repo) + "/snapshots"))
        return base::FailedPrecondition(path, ": is not in the cache of ", name.repo);
      RETURN_IF_ERROR(RemoveFromHub(name.repo, path, remover));
      break;
    case ModelName::Kind::kRegistry:
      if (!LiesBelow(path, store))
        return base::FailedPrecondition(name.Shown(), " belongs to Ollama (", path,
                                        "); `ollama rm` deletes it");
      RETURN_IF_ERROR(RemoveFromStore(store, name, path, remover));
      break;
    case ModelName::Kind::kAddress:
      // In a folder of its own, one for each address.
      if (!LiesBelow(fs::path(path).parent_path().string(), OwnStore() + "/files"))
        return base::FailedPrecondition(path, ": was not fetched from ", name.Shown());
      RETURN_IF_ERROR(RemoveAddress(path, remover));
  }
  return remover.bytes();
}

}  // namespace thermocline::hub
