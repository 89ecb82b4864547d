// The Hugging Face hub, and its cache:
//
//   models--OWNER--REPO/blobs/<sha256, or git's hash of a small file>
//   models--OWNER--REPO/snapshots/<commit>/<path>  -> ../../blobs/..., relative
//   models--OWNER--REPO/refs/<branch>              the commit's 40 digits
//   .locks/models--OWNER--REPO/<blob>.lock         locked while the blob is written
//
// Links are made when all blobs are complete, refs last. Source: huggingface_hub's cache layout.
#include <unistd.h>

#include <filesystem>
#include <map>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/posix_error.h"
#include "engine/hub/choose_files.h"
#include "engine/hub/find_model.h"
#include "engine/hub/folders.h"
#include "tools/fetch/http_client.h"
#include "tools/fetch/sources.h"

namespace thermocline::tools {
namespace {

namespace fs = std::filesystem;

constexpr int kPagesMax = 100, kJsonSeconds = 60;
constexpr std::size_t kFilesMax = 100'000;

struct HubFile {
  std::string path, blob, sha256;  // `blob` is its name in blobs/
  std::int64_t bytes = 0;
};

// One repository at one commit.
class HubSource {
 public:
  HubSource(const hub::ModelName& name, std::string token)
      : name_(name),
        token_(std::move(token)),
        endpoint_(hub::HubEndpoint()),
        page_(endpoint_ + "/" + name.repo),
        folder_(hub::RepoFolder(name.repo)) {}

  Result<std::string> FetchAll(FetchProgress& progress) {
    RETURN_IF_ERROR(FindCommit());
    RETURN_IF_ERROR(ListFiles());
    std::vector<std::string> paths;
    std::map<std::string, const HubFile*> by_path;
    for (const HubFile& file : files_)
      if (by_path.emplace(file.path, &file).second) paths.push_back(file.path);
    ASSIGN_OR_RETURN(const std::vector<std::string> chosen,
                     hub::ChooseFiles(paths, name_.quant, name_.repo));
    std::vector<const HubFile*> wanted;
    for (const std::string& path : chosen) wanted.push_back(by_path.at(path));
    RETURN_IF_ERROR(CheckSpace(wanted, progress));
    for (const HubFile* file : wanted) RETURN_IF_ERROR(FetchBlob(*file, progress));
    for (const HubFile* file : wanted) RETURN_IF_ERROR(LinkFile(*file));
    RETURN_IF_ERROR(WriteRef());
    const std::string snapshot = StrCat(folder_, "/snapshots/", commit_);
    return chosen.back() == "config.json" ? snapshot : snapshot + "/" + chosen.front();
  }

 private:
  Result<Json> Ask(const std::string& url, HttpResponse& response) const {
    ASSIGN_OR_RETURN(Json json,
                     GetJson({.url = url, .token = token_, .seconds_max = kJsonSeconds}, response));
    if (response.status != 200)
      return AccessStatus(response.status, name_.repo, page_, !token_.empty());
    return json;
  }

  // The revision's commit, from the list of branches and tags.
  Status FindCommit() {
    commit_ = name_.revision;
    if (hub::IsHex(commit_, 40)) return OkStatus();
    HttpResponse response;
    ASSIGN_OR_RETURN(const Json refs,
                     Ask(StrCat(endpoint_, "/api/models/", name_.repo, "/refs"), response));
    for (const char* kind : {"branches", "tags"}) {
      const Json* list = refs.Find(kind);
      if (list == nullptr || !list->is_array()) continue;
      for (const Json& ref : list->as_array()) {
        const Json *name = ref.Find("name"), *commit = ref.Find("targetCommit");
        if (name == nullptr || !name->is_string() || name->as_string() != name_.revision) continue;
        if (commit == nullptr || !commit->is_string() || !hub::IsHex(commit->as_string(), 40))
          return base::DataLoss(name_.repo, ": the hub names no commit for ", name_.revision);
        commit_ = commit->as_string();
        return OkStatus();
      }
    }
    return base::NotFound(name_.repo, ": has no branch or tag ", name_.revision, "; see ", page_);
  }

  // All pages of the tree.
  Status ListFiles() {
    std::string url =
        StrCat(endpoint_, "/api/models/", name_.repo, "/tree/", commit_, "?recursive=true");
    for (int i = 0; i < kPagesMax && !url.empty(); ++i) {
      HttpResponse response;
      ASSIGN_OR_RETURN(const Json tree, Ask(url, response));
      if (!tree.is_array())
        return base::DataLoss(name_.repo, ": the hub's list of files is no list");
      for (const Json& entry : tree.as_array()) RETURN_IF_ERROR(AddFile(entry));
      if (files_.size() > kFilesMax)
        return base::FailedPrecondition(name_.repo, ": has more than ", kFilesMax, " files");
      url = NextPage(response.Header("link"));
    }
    if (!url.empty())
      return base::DataLoss(name_.repo, ": the hub's list of files has more than ", kPagesMax,
                            " pages");
    return OkStatus();
  }

  // The address of `<ADDRESS>; rel="next"` if it is the hub's; "" = the last page.
  std::string NextPage(const std::string& link) const {
    const std::size_t end = link.find(">; rel=\"next\"");
    if (end == std::string::npos) return "";
    const std::size_t begin = link.rfind('<', end);
    if (begin == std::string::npos) return "";
    const std::string url = link.substr(begin + 1, end - begin - 1);
    return url.starts_with(endpoint_ + "/") ? url : "";
  }

  Status AddFile(const Json& entry) {
    const Json *type = entry.Find("type"), *path = entry.Find("path"), *oid = entry.Find("oid"),
               *size = entry.Find("size");
    if (type == nullptr || !type->is_string() || type->as_string() != "file") return OkStatus();
    if (path == nullptr || !path->is_string() || !hub::IsPlainPath(path->as_string()))
      return base::DataLoss(
          name_.repo,
          ": the hub lists a file whose name leads out of the folder; nothing is fetched");
    HubFile file{.path = path->as_string(), .blob = {}, .sha256 = {}};
    if (const Json* lfs = entry.Find("lfs")) {
      oid = lfs->Find("oid");
      size = lfs->Find("size") != nullptr ? lfs->Find("size") : size;
    }
    if (oid == nullptr || !oid->is_string() || size == nullptr || !size->is_int() ||
        size->as_int() < 0)
      return base::DataLoss(name_.repo, ": the hub states no hash and size of a file");
    file.blob = oid->as_string();
    file.bytes = size->as_int();
    const bool lfs = entry.Find("lfs") != nullptr;
    if (!hub::IsHex(file.blob, lfs ? 64 : 40))
      return base::DataLoss(name_.repo, ": the hub's hash of a file has not ", lfs ? 64 : 40,
                            " hexadecimal digits");
    if (lfs) file.sha256 = file.blob;
    if (lfs && file.bytes == 0)
      return base::DataLoss(name_.repo, ": the hub states that a large file has 0 bytes");
    files_.push_back(std::move(file));
    return OkStatus();
  }

  std::string BlobOf(const HubFile& file) const { return StrCat(folder_, "/blobs/", file.blob); }

  Status CheckSpace(const std::vector<const HubFile*>& wanted, FetchProgress& progress) const {
    constexpr std::int64_t kBytesMax = std::int64_t{1} << 50;  // of all together
    std::int64_t total = 0, needed = 0;
    for (const HubFile* file : wanted) {
      if (file->bytes > kBytesMax - total)
        return base::DataLoss(name_.repo, ": the hub states a size of ", file->bytes, " bytes");
      total += file->bytes;
      progress.AddTotal(file->bytes);
      std::error_code error;
      for (const char* suffix : {"", ".part"})
        if (const auto there = fs::file_size(BlobOf(*file) + suffix, error); !error)
          needed -= std::min<std::int64_t>(static_cast<std::int64_t>(there), file->bytes);
      needed += file->bytes;
    }
    return CheckFreeSpace(folder_, needed);
  }

  Status FetchBlob(const HubFile& file, FetchProgress& progress) const {
    const std::string folder_name = fs::path(folder_).filename().string();
    const std::string lock = StrCat(".locks/", folder_name, "/", file.blob, ".lock");
    RETURN_IF_ERROR(MakeFolders(hub::HubCache(), lock));
    fs::create_directories(folder_ + "/blobs", ignored_);
    Download download{.url = StrCat(page_, "/resolve/", commit_, "/", EscapePath(file.path)),
                      .token = token_,
                      .path = BlobOf(file),
                      .lock = hub::HubCache() + "/" + lock,
                      .label = StrCat(name_.repo, "/", file.path),
                      .sha256 = file.sha256,
                      .bytes = file.bytes,
                      .page = page_};
    // An empty file needs no request.
    if (file.bytes == 0) return WriteSmallFile(download.path, "");
    return Fetch(download, progress);
  }

  // Makes the snapshot's link, or a copy where the file system has no links.
  Status LinkFile(const HubFile& file) const {
    const std::string inside = StrCat("snapshots/", commit_, "/", file.path);
    RETURN_IF_ERROR(MakeFolders(folder_, inside));
    const std::string path = folder_ + "/" + inside,
                      temporary = StrCat(path, ".", ::getpid(), ".link");
    std::string target = "../../blobs/" + file.blob;
    for (const char c : file.path)
      if (c == '/') target.insert(0, "../");
    std::error_code error;
    fs::create_symlink(target, temporary, error);
    if (error) {
      error.clear();
      fs::copy_file(BlobOf(file), temporary, fs::copy_options::overwrite_existing, error);
    }
    if (!error) fs::rename(temporary, path, error);
    return error ? base::ErrnoStatus(path, "create", error.value()) : OkStatus();
  }

  Status WriteRef() const {
    if (commit_ == name_.revision) return OkStatus();
    RETURN_IF_ERROR(MakeFolders(folder_, "refs/" + name_.revision));
    return WriteSmallFile(folder_ + "/refs/" + name_.revision, commit_);
  }

  const hub::ModelName& name_;
  const std::string token_, endpoint_, page_, folder_;
  std::string commit_ = {};
  std::vector<HubFile> files_ = {};
  mutable std::error_code ignored_ = {};
};

}  // namespace

Result<std::string> FetchFromHub(const hub::ModelName& name, FetchProgress& progress) {
  ASSIGN_OR_RETURN(std::string token, hub::HubToken());
  return HubSource(name, std::move(token)).FetchAll(progress);
}

}  // namespace thermocline::tools
