// The files of a repository that make one model.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"

namespace thermocline::hub {

// The quant that a file's name states ("Q4_K_M", "BF16"), in upper case; "" if there is none.
std::string QuantOf(std::string_view path);

// Returns, of `paths`, the GGUF file of `quant` with all its parts, first part first. `quant` is a
// quant's name, a file's path, or "" for Q4_K_M, else Q8_0, else the first. A repository without
// GGUF: its configuration, tokenizer and safetensors, config.json last. NotFound names the quants
// there are; DataLoss a missing part. `where` begins the messages.
Result<std::vector<std::string>> ChooseFiles(const std::vector<std::string>& paths,
                                             const std::string& quant, const std::string& where);

// All paths of the model whose first or only part is `path`: "-00001-of-00003" is numbered.
std::vector<std::string> PartsOf(const std::string& path);

}  // namespace thermocline::hub
