// A model in several GGUF files, "NAME-00001-of-00003.gguf" and so on.
#pragma once

#include <string>

#include "engine/model/model_file.h"

namespace thermocline::model {

// Adds the other files' tensors to those of the first, at `path`; does nothing for a single file.
// InvalidArgument: `path` is not the first, or a file belongs to another model; NotFound names a
// missing file; DataLoss: the tensors are incomplete. Source: llama.cpp's gguf-split.
Status AddGgufShards(const std::string& path, ModelFile& model);

}  // namespace thermocline::model
