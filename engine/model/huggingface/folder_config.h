// The configuration files of a Hugging Face folder.
#pragma once

#include <string>

#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/model/model_file.h"

namespace thermocline::model {

// The path of a file of the folder.
std::string FolderFile(const std::string& folder, const std::string& name);
// A JSON file, of at most 16 MiB and a million values. Errors name the path.
Result<Json> ReadFolderJson(const std::string& path);
// Returns the config of the text part of a multimodal model.
Json TextConfigOf(const Json& config);
// Reads config.json, how the weights are packed, and how texts become vectors or scores, into the
// model's metadata and config.
Status ReadFolderConfig(const std::string& folder, ModelFile& model);

}  // namespace thermocline::model
