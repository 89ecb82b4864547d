#include "engine/hub/scan.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "engine/base/file.h"
#include "engine/hub/choose_files.h"
#include "engine/hub/find_model.h"
#include "engine/hub/folders.h"

namespace thermocline::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFilesMax = 100'000;

std::uint64_t SizeOf(const std::string& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? 0 : size;
}

// The first or only parts of models among `files`.
std::vector<std::string> FirstParts(const std::vector<std::string>& files) {
  std::vector<std::string> out;
  for (const std::string& file : files)
    if (file.ends_with(".gguf") && PartsOf(file).front() == file) out.push_back(file);
  return out;
}

std::uint64_t SizeOfParts(const std::string& first) {
  std::uint64_t bytes = 0;
  for (const std::string& part : PartsOf(first)) bytes += SizeOf(part);
  return bytes;
}

// Names a GGUF file of a repository by its quant, if that finds this file, else by its path there.
std::string HubName(const std::string& repo, const std::string& snapshot, const std::string& path) {
  const std::string inside = path.substr(snapshot.size() + 1);
  for (const std::string& quant : {QuantOf(inside), inside}) {
    if (quant.empty()) continue;
    const ModelName name{.repo = repo, .quant = quant};
    const auto found = FindModel(name);
    if (found.ok() && *found == path) return "hf:" + name.Shown();
  }
  return path;
}

void AddSnapshot(const std::string& repo, const std::string& snapshot,
                 std::vector<FoundModel>& out) {
  const std::vector<std::string> files = FilesBelow(snapshot);
  for (const std::string& path : FirstParts(files))
    out.push_back({HubName(repo, snapshot, path), "hub", path, SizeOfParts(path)});
  std::uint64_t bytes = 0;
  for (const std::string& path : files)
    if (path.ends_with(".safetensors")) bytes += SizeOf(path);
  if (bytes == 0 || !base::PathExists(snapshot + "/config.json")) return;
  const auto found = FindModel({.repo = repo});
  const bool named = found.ok() && *found == snapshot;
  out.push_back({named ? "hf:" + repo : snapshot, "hub", snapshot, bytes});
}

void AddHub(std::vector<FoundModel>& out) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(HubCache(), error)) {
    const std::string folder = entry.path().filename().string();
    const std::size_t dashes = folder.find("--", 8);
    if (!folder.starts_with("models--") || dashes == std::string::npos) continue;
    const std::string repo = StrCat(folder.substr(8, dashes - 8), "/", folder.substr(dashes + 2));
    std::error_code none;
    for (const auto& snapshot : fs::directory_iterator(entry.path() / "snapshots", none))
      AddSnapshot(repo, snapshot.path().string(), out);
  }
}

}  // namespace

std::vector<std::string> FilesBelow(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code error;
  fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, error);
  for (; !error && at != fs::recursive_directory_iterator() && out.size() < kFilesMax;
       at.increment(error)) {
    std::error_code none;
    if (at->is_regular_file(none)) out.push_back(at->path().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<FoundModel> ModelsInStore(const std::string& store) {
  std::vector<FoundModel> out;
  const std::string manifests = store + "/manifests/";
  for (const std::string& path : FilesBelow(store + "/manifests")) {
    std::vector<std::string> parts;
    for (const fs::path& part : fs::path(path.substr(manifests.size())))
      parts.push_back(part.string());
    if (parts.size() != 4) continue;
    const ModelName name{.kind = ModelName::Kind::kRegistry,
                         .host = parts[0],
                         .owner = parts[1],
                         .model = parts[2],
                         .tag = parts[3]};
    const auto text = base::ReadFileToString(path, 16 << 20);
    const auto manifest = text.ok() ? base::ParseJson(*text) : text.status();
    const auto layer = manifest.ok() ? ModelLayer(*manifest, path) : manifest.status();
    if (!layer.ok()) continue;
    const std::string blob = BlobPath(store, layer->Find("digest")->as_string());
    const std::uint64_t bytes = SizeOf(blob);
    if (static_cast<std::int64_t>(bytes) != layer->Find("size")->as_int()) continue;
    out.push_back({name.Shown(), "ollama", blob, bytes});
  }
  return out;
}

std::vector<FoundModel> ModelsIn(const std::string& folder) {
  const std::vector<std::string> files = FilesBelow(folder);
  std::vector<FoundModel> out;
  std::map<std::string, int> names;
  const auto add = [&](const std::string& path, std::uint64_t bytes) {
    const fs::path inside = fs::path(path).lexically_relative(folder);
    // "*" would stand for every name that clients send.
    const std::string served = ServedName(path), name = served == "*" ? "star" : served;
    ++names[name];
    out.push_back({(inside.parent_path() / name).string(), "files", path, bytes});
  };
  for (const std::string& path : FirstParts(files))
    if (!fs::path(path).filename().string().starts_with("mmproj")) add(path, SizeOfParts(path));
  for (const std::string& path : files)
    if (fs::path(path).filename() == "config.json" && fs::path(path).parent_path() != folder)
      add(fs::path(path).parent_path().string(), 0);
  for (FoundModel& found : out) {
    const std::string name = fs::path(found.name).filename().string();
    if (names[name] == 1) found.name = name;
  }
  std::sort(out.begin(), out.end(),
            [](const FoundModel& a, const FoundModel& b) { return a.name < b.name; });
  return out;
}

std::vector<FoundModel> ScanModels() {
  std::vector<FoundModel> out;
  AddHub(out);
  for (const std::string& store : OllamaStores())
    for (FoundModel& found : ModelsInStore(store)) {
      found.name = "ollama:" + found.name;
      out.push_back(std::move(found));
    }
  for (const std::string& folder : PlainFolders())
    for (const std::string& path : FirstParts(FilesBelow(folder)))
      out.push_back({path, "files", path, SizeOfParts(path)});
  std::set<std::string> seen;  // two variables may name one folder
  std::erase_if(out, [&](const FoundModel& found) {
    return !seen.insert(found.name + "\n" + found.path).second;
  });
  return out;
}

}  // namespace thermocline::hub
