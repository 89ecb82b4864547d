// The sources of models: the hub, Ollama's registry, any address.
#pragma once

#include <string>

#include "engine/hub/model_name.h"
#include "tools/fetch/download.h"

namespace thermocline::tools {

// Each returns the model's path when all of its files are complete; errors as Fetch. Files go into
// the cache that huggingface_hub has, into OwnStore()/ollama and into OwnStore()/files.
Result<std::string> FetchFromHub(const hub::ModelName& name, FetchProgress& progress);
Result<std::string> FetchFromRegistry(const hub::ModelName& name, FetchProgress& progress);
Result<std::string> FetchFromAddress(const hub::ModelName& name, FetchProgress& progress);

}  // namespace thermocline::tools
