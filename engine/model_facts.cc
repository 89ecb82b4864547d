#include "engine/model_facts.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>

#include "engine/base/out_of_memory.h"
#include "engine/model/open/builtin.h"
#include "engine/model/open/open_model.h"

namespace thermocline {

Result<std::unique_ptr<text::Tokenizer>> ReadTokenizer(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string found, model::ResolveModel(path));
  ASSIGN_OR_RETURN(const auto file, model::OpenModelFile(found));
  auto tokenizer = text::Tokenizer::Create(file->vocabulary);
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

ModelFacts ReadModelFacts(const std::string& path) {
  ModelFacts facts;
  const auto found = model::ResolveModel(path);
  if (!found.ok()) return facts;
  struct stat status {};
  if (::stat(found->c_str(), &status) == 0) facts.modified = status.st_mtime;
  const auto file =
      base::OrNoMemory("the model's header", [&] { return model::OpenModelFile(*found); });
  if (!file.ok()) return facts;
  const model::ModelConfig& config = (*file)->config;
  facts.bytes = static_cast<std::int64_t>((*file)->bytes());
  facts.architecture = config.architecture->name;
  facts.num_parameters = config.num_parameters();
  facts.context_length_trained = config.max_position_embeddings;
  std::map<std::string, std::int64_t> types;
  std::int64_t most = 0;
  for (const model::TensorInfo& tensor : (*file)->tensors) {
    const std::string type = tensor.type->name;
    types[type] += static_cast<std::int64_t>(tensor.bytes);
    if (types[type] > most) facts.weight_type = type;
    most = std::max(most, types[type]);
  }
  return facts;
}

}  // namespace thermocline
