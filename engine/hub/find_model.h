// Finds fetched models on this machine, without the network.
#pragma once

#include <string>

#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/hub/model_name.h"

namespace thermocline::hub {

// The path of a fetched model: a GGUF file (its first part) or a folder with safetensors. NotFound
// if it is not here, or not all of it.
Result<std::string> FindModel(const ModelName& name);
// The path of a model on this machine that is given by its path or its name; "" = it is not here.
std::string LocalPath(const std::string& text);
// The model layer of a registry's manifest: {digest "sha256:...", size}. Unimplemented if it has
// none that is GGUF, InvalidArgument if the manifest is malformed.
Result<Json> ModelLayer(const Json& manifest, const std::string& where);
// The blob's path for a digest "sha256:<64 hex>" in a store; "" if the digest is malformed.
std::string BlobPath(const std::string& store, const std::string& digest);

// The name under which clients see the model at `path`, which is a path or a name that
// ParseModelName reads. An Ollama blob has the name that a manifest beside it gives.
std::string ServedName(const std::string& path);

}  // namespace thermocline::hub
