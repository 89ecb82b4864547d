#include "engine/hub/folders.h"

#include <algorithm>
#include <cstdlib>

#include "engine/base/bytes.h"
#include "engine/base/file.h"
#include "engine/base/hash.h"

namespace thermocline::hub {
namespace {

// The variable's value, or "" if it is not set.
std::string Environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

// The variable's folder, or `folder` in the home folder.
std::string FolderOf(const char* variable, const char* folder) {
  const std::string value = Environment(variable);
  return value.empty() ? StrCat(Environment("HOME"), "/", folder) : value;
}

std::string HubHome() {
  const std::string home = Environment("HF_HOME");
  return home.empty() ? FolderOf("XDG_CACHE_HOME", ".cache") + "/huggingface" : home;
}

std::string AddressFrom(const char* variable, const char* otherwise) {
  std::string value = Environment(variable);
  while (value.ends_with('/')) value.pop_back();
  return value.empty() ? otherwise : value;
}

}  // namespace

std::string HubCache() {
  for (const char* variable : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (std::string folder = Environment(variable); !folder.empty()) return folder;
  return HubHome() + "/hub";
}

std::string HubEndpoint() { return AddressFrom("HF_ENDPOINT", "https://huggingface.co"); }

Result<std::string> HubToken() {
  std::string token = Environment("HF_TOKEN");
  if (token.empty()) {
    std::string path = Environment("HF_TOKEN_PATH");
    if (path.empty()) path = HubHome() + "/token";
    if (!base::PathExists(path)) return token;
    ASSIGN_OR_RETURN(token, base::ReadFileToString(path, 64 << 10));
  }
  const std::size_t begin = token.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return std::string();
  token = token.substr(begin, token.find_last_not_of(" \t\r\n") - begin + 1);
  if (std::any_of(token.begin(), token.end(), [](char c) { return c <= 0x20 || c >= 0x7F; }))
    return base::InvalidArgument(
        "the hub's token (HF_TOKEN or its file) has a space, a line break or a character "
        "that is not ASCII: copy it again");
  return token;
}

bool Offline() {
  std::string value = Environment("HF_HUB_OFFLINE");
  std::transform(value.begin(), value.end(), value.begin(), base::ToLower);
  return value == "1" || value == "true" || value == "yes" || value == "on";
}

std::string RegistryEndpoint() {
  return AddressFrom("THERMOCLINE_OLLAMA_REGISTRY", "https://registry.ollama.ai");
}

std::string OwnStore() { return FolderOf("XDG_DATA_HOME", ".local/share") + "/thermocline"; }

std::vector<std::string> OllamaStores() {
  std::vector<std::string> stores = {OwnStore() + "/ollama"};
  if (const std::string folder = Environment("OLLAMA_MODELS"); !folder.empty())
    stores.push_back(folder);
  stores.push_back(Environment("HOME") + "/.ollama/models");
  stores.emplace_back("/usr/share/ollama/.ollama/models");
  return stores;
}

std::vector<std::string> PlainFolders() {
  const std::string home = Environment("HOME");
  const std::string llama = Environment("LLAMA_CACHE");
  return {home + "/.lmstudio/models", home + "/.cache/lm-studio/models",
          llama.empty() ? FolderOf("XDG_CACHE_HOME", ".cache") + "/llama.cpp" : llama,
          OwnStore() + "/files"};
}

std::string RepoFolder(const std::string& repo) {
  const std::size_t slash = repo.find('/');
  return StrCat(HubCache(), "/models--", repo.substr(0, slash), "--", repo.substr(slash + 1));
}

std::string ManifestPath(const std::string& store, const ModelName& name) {
  return StrCat(store, "/manifests/", name.host, "/", name.owner, "/", name.model, "/", name.tag);
}

std::string AddressFolder(const std::string& address) {
  return StrCat(OwnStore(), "/files/", base::HashOf(address).Hex());
}

}  // namespace thermocline::hub
