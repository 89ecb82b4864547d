#include "engine/model/open/open_model.h"

#include <array>
#include <span>
#include <string_view>

#include "engine/base/file.h"
#include "engine/model/gguf/open_gguf.h"
#include "engine/model/huggingface/open_folder.h"
#include "engine/model/open/llama2c.h"

namespace thermocline::model {

Result<std::unique_ptr<ModelFile>> OpenModelFile(const std::string& path) {
  ASSIGN_OR_RETURN(auto file, OpenModelOrVocabulary(path));
  if (file->has_weights) return file;
  return base::InvalidArgument(path, ": holds a vocabulary only, no weights");
}

Result<std::unique_ptr<ModelFile>> OpenModelOrVocabulary(const std::string& path) {
  if (base::IsDirectory(path)) return OpenHuggingFace(path);
  ASSIGN_OR_RETURN(const auto file, base::OpenFile(path));
  if (file->size() < 28) {
    return base::DataLoss(path, ": ", file->size(),
                          " bytes are no model; the download may be incomplete");
  }
  std::array<char, 4> magic{};
  RETURN_IF_ERROR(file->ReadAt(0, std::as_writable_bytes(std::span(magic))));
  const std::string_view word(magic.data(), magic.size());
  if (word == "GGUF" || word == "PWRI") return OpenGguf(path);
  if (word == "24ka" || path.ends_with(".bin")) return OpenLlama2c(path);
  return base::InvalidArgument(
      path,
      ": not a model: the magic is neither GGUF, PowerInfer's nor llama2.c's, and it is no Hugging "
      "Face folder");
}

}  // namespace thermocline::model
