// Folders of models on this machine, and addresses, as environment variables set them.
//
// Source: the variables of huggingface_hub, llama.cpp and Ollama.
#pragma once

#include <string>
#include <vector>

#include "engine/hub/model_name.h"

namespace thermocline::hub {

// HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub,
// ~/.cache/huggingface/hub: the first that is set.
std::string HubCache();
// The hub's address without a slash at the end: HF_ENDPOINT, else https://huggingface.co.
std::string HubEndpoint();
// HF_TOKEN, else the content of HF_TOKEN_PATH or $HF_HOME/token; "" = none. A token with a
// character that cannot be in a header is InvalidArgument.
Result<std::string> HubToken();
// HF_HUB_OFFLINE is 1, true, yes or on.
bool Offline();

// The address of Ollama's registry: THERMOCLINE_OLLAMA_REGISTRY, else https://registry.ollama.ai.
std::string RegistryEndpoint();
// Our own folder: $XDG_DATA_HOME/thermocline, else ~/.local/share/thermocline. Models of the
// registry are in OwnStore()/ollama, files of other addresses in OwnStore()/files.
std::string OwnStore();
// Folders in Ollama's layout: ours, $OLLAMA_MODELS, ~/.ollama/models, the Linux service's.
std::vector<std::string> OllamaStores();
// Folders of LM Studio and llama.cpp, with GGUF files at any depth.
std::vector<std::string> PlainFolders();

// The folder of a repository in the hub's cache.
std::string RepoFolder(const std::string& repo);
// The path of a registry name's manifest in a store.
std::string ManifestPath(const std::string& store, const ModelName& name);
// The path that the file of an address has in our own folder; `file` is its name.
std::string AddressFolder(const std::string& address);

}  // namespace thermocline::hub
