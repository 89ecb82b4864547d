// A model in several GGUF files, "NAME-00001-of-00003.gguf" and so on.
#pragma once

#include <string>

#include "engine/model/model_file.h"

namespace thermocline::model {

// Adds the other files' tensors to those of the first, at `path`; nothing where a file is alone.
// InvalidArgument: `path` is not the first, or a file is of another model; NotFound names a file
// that is missing; DataLoss: not all tensors are there. Source: llama.cpp's gguf-split.
Status AddGgufShards(const std::string& path, ModelFile& model);

}  // namespace thermocline::model
