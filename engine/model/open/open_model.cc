#include "engine/model/open/open_model.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "engine/base/file.h"
#include "engine/model/gguf/open_gguf.h"
#include "engine/model/huggingface/open_folder.h"
#include "engine/model/open/foreign_file.h"
#include "engine/model/open/llama2c.h"

namespace thermocline::model {

Result<std::unique_ptr<ModelFile>> OpenModelFile(const std::string& path) {
  ASSIGN_OR_RETURN(auto file, OpenModelOrVocabulary(path));
  if (file->has_weights) return file;
  return base::InvalidArgument(path, ": holds a vocabulary only, no weights");
}

Result<std::unique_ptr<ModelFile>> OpenModelOrVocabulary(const std::string& path) {
  if (base::IsDirectory(path)) {
    if (!base::PathExists(path + "/config.json")) return ForeignFolder(path);
    return OpenHuggingFace(path);
  }
  ASSIGN_OR_RETURN(const auto file, base::OpenFile(path));
  if (file->size() < 28) {
    return base::DataLoss(path, ": ", file->size(),
                          " bytes are no model; the download may be incomplete");
  }
  std::array<char, kForeignBytes> first{};
  const auto begin = std::span(first).first(std::min<std::size_t>(file->size(), first.size()));
  RETURN_IF_ERROR(file->ReadAt(0, std::as_writable_bytes(begin)));
  const std::string_view text(begin.data(), begin.size()), word = text.substr(0, 4);
  if (word == "GGUF" || word == "PWRI") return OpenGguf(path);
  if (const std::string what = WhatFileIs(path, text); !what.empty())
    return base::InvalidArgument(path, ": ", what);
  if (word == "24ka" || path.ends_with(".bin")) return OpenLlama2c(path);
  return base::InvalidArgument(
      path,
      ": not a model: the magic is neither GGUF, PowerInfer's nor llama2.c's, and it is no Hugging "
      "Face folder");
}

}  // namespace thermocline::model
