// Ollama's registry, whose models go into our own store in Ollama's layout: blobs/sha256-<digest>
// and, when all of them are complete, manifests/HOST/OWNER/MODEL/TAG.
#include <filesystem>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/sha256.h"
#include "engine/hub/choose_files.h"
#include "engine/hub/find_model.h"
#include "engine/hub/folders.h"
#include "tools/fetch/http_client.h"
#include "tools/fetch/sources.h"

namespace thermocline::tools {
namespace {

namespace fs = std::filesystem;

constexpr int kLayersMax = 100;

struct Layer {
  std::string digest;
  std::int64_t bytes = 0;
};

// The model's own layers and its configuration: a projector is for images, an adapter and a draft
// are models of their own.
Result<std::vector<Layer>> LayersOf(const Json& manifest, const std::string& where) {
  RETURN_IF_ERROR(hub::ModelLayer(manifest, where).status());
  Json::Array all = manifest.Find("layers")->as_array();
  if (const Json* config = manifest.Find("config")) all.push_back(*config);
  std::vector<Layer> layers;
  for (const Json& layer : all) {
    const Json *type = layer.Find("mediaType"), *digest = layer.Find("digest"),
               *size = layer.Find("size");
    const std::string kind = type != nullptr && type->is_string() ? type->as_string() : "";
    if (kind.ends_with(".projector") || kind.ends_with(".adapter") || kind.ends_with(".draft"))
      continue;
    if (digest == nullptr || !digest->is_string() ||
        hub::BlobPath("", digest->as_string()).empty() || size == nullptr || !size->is_int() ||
        size->as_int() <= 0 || size->as_int() > (std::int64_t{1} << 50) ||
        layers.size() == kLayersMax) {
      return base::DataLoss(
          where, ": the registry's manifest has a layer without a sha256 digest and a size");
    }
    layers.push_back({digest->as_string(), size->as_int()});
  }
  return layers;
}

}  // namespace

Result<std::string> FetchFromRegistry(const hub::ModelName& name, FetchProgress& progress) {
  const std::string store = hub::OwnStore() + "/ollama";
  const bool known = name.host == "registry.ollama.ai";
  const std::string endpoint = known ? hub::RegistryEndpoint() : "https://" + name.host;
  const std::string base_url = StrCat(endpoint, "/v2/", name.owner, "/", name.model);
  const std::string page =
      known ? StrCat("https://ollama.com/", name.owner, "/", name.model) : endpoint;
  HttpResponse response;
  ASSIGN_OR_RETURN(
      const Json manifest,
      GetJson({.url = StrCat(base_url, "/manifests/", name.tag),
               .headers = {"Accept: application/vnd.docker.distribution.manifest.v2+json"},
               .seconds_max = 60},
              response));
  if (response.status != 200) return AccessStatus(response.status, name.Shown(), page, false);
  ASSIGN_OR_RETURN(const std::vector<Layer> layers, LayersOf(manifest, name.Shown()));
  std::int64_t needed = 0;
  for (const Layer& layer : layers) {
    progress.AddTotal(layer.bytes);
    std::error_code error;
    const std::string path = hub::BlobPath(store, layer.digest);
    for (const char* suffix : {"", ".part"})
      if (const auto there = fs::file_size(path + suffix, error); !error)
        needed -= std::min(static_cast<std::int64_t>(there), layer.bytes);
    needed += layer.bytes;
  }
  RETURN_IF_ERROR(CheckFreeSpace(store, needed));
  RETURN_IF_ERROR(MakeFolders(store, "blobs/file"));
  for (const Layer& layer : layers) {
    const std::string path = hub::BlobPath(store, layer.digest);
    const Download download{.url = StrCat(base_url, "/blobs/", layer.digest),
                            .path = path,
                            .lock = path + ".lock",
                            .label = name.Shown() + " " + layer.digest.substr(7, 12),
                            .sha256 = layer.digest.substr(7),
                            .bytes = layer.bytes,
                            .page = page};
    RETURN_IF_ERROR(Fetch(download, progress));
  }
  const std::string path = hub::ManifestPath(store, name);
  RETURN_IF_ERROR(MakeFolders(store, path.substr(store.size() + 1)));
  RETURN_IF_ERROR(WriteSmallFile(path, manifest.Dump()));
  return hub::FindModel(name);
}

Result<std::string> FetchFromAddress(const hub::ModelName& name, FetchProgress& progress) {
  const std::string folder = hub::AddressFolder(name.address);
  const std::size_t query = std::min(name.address.find_first_of("?#"), name.address.size());
  const std::string begin = name.address.substr(0, name.address.rfind('/', query) + 1);
  RETURN_IF_ERROR(MakeFolders(folder, "file"));
  const std::vector<std::string> parts = hub::PartsOf(name.Shown() + ".gguf");
  for (const std::string& part : parts) {
    const std::string path = folder + "/" + part;
    const Download download{.url = begin + part + name.address.substr(query),
                            .path = path,
                            .lock = path + ".lock",
                            .label = part,
                            .page = begin};
    RETURN_IF_ERROR(Fetch(download, progress));
  }
  return folder + "/" + parts.front();
}

}  // namespace thermocline::tools
