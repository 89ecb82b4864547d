// Reads llama2.c's checkpoints and their tokenizers.
#pragma once

#include <memory>
#include <string>

#include "engine/base/status.h"
#include "engine/model/model_file.h"

namespace thermocline::model {

// Errors as OpenModelFile.
Result<std::unique_ptr<ModelFile>> OpenLlama2c(const std::string& path);
// The vocabulary of llama2.c's tokenizer.bin with `vocab_size` tokens.
Result<Vocabulary> ReadLlama2cTokenizer(const std::string& path, int vocab_size);

}  // namespace thermocline::model
