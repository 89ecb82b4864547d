#include "engine/model/gguf/shards.h"

#include <cstdio>
#include <unordered_set>

#include "engine/base/index.h"
#include "engine/model/gguf/container.h"
#include "engine/model/gguf/keys.h"

namespace thermocline::model {
namespace {

// "-00002-of-00003.gguf"
std::string Suffix(int shard, int count) {
  char text[32];
  std::snprintf(text, sizeof(text), "-%05d-of-%05d.gguf", shard + 1, count);
  return text;
}

// Returns the path of shard `shard`, given `path` of shard `own`.
Result<std::string> PathOf(const std::string& path, int own, int shard, int count) {
  const std::string suffix = Suffix(own, count);
  if (!path.ends_with(suffix))
    return base::InvalidArgument("is part ", own + 1, " of ", count, ", but its name does not end ",
                                 "in '", suffix, "', so that the others cannot be found; give the ",
                                 "files the names that they had");
  return path.substr(0, path.size() - suffix.size()) + Suffix(shard, count);
}

Status AddShard(const std::string& path, int shard, int count, ModelFile& model) {
  ASSIGN_OR_RETURN(auto file, base::OpenFile(path));
  ASSIGN_OR_RETURN(GgufContainer container, ReadGgufContainer(*file, base::IntSize(model.files)));
  const Keys keys(container.metadata);
  ASSIGN_OR_RETURN(const int number, keys.Int("split.no", -1));
  ASSIGN_OR_RETURN(const int of, keys.Int("split.count", 1));
  if (number != shard || of != count)
    return base::InvalidArgument(path, ": says that it is part ", number + 1, " of ", of,
                                 ", not part ", shard + 1, " of ", count);
  model.files.push_back(std::move(file));
  if (container.tensors.size() > kModelTensorsMax - model.tensors.size())
    return base::DataLoss(path, ": with this part the model has more than ", kModelTensorsMax,
                          " tensors");
  model.tensors.insert(model.tensors.end(), container.tensors.begin(), container.tensors.end());
  return OkStatus();
}

Status CheckTensors(const ModelFile& model, int expected) {
  std::unordered_set<std::string_view> seen;
  for (const TensorInfo& tensor : model.tensors) {
    if (!seen.insert(tensor.name).second)
      return base::DataLoss("tensor '", tensor.name, "' is in two parts");
  }
  if (expected != 0 && base::IntSize(model.tensors) != expected)
    return base::DataLoss("the parts hold ", model.tensors.size(), " tensors, and the first says ",
                          expected);
  return OkStatus();
}

}  // namespace

Status AddGgufShards(const std::string& path, ModelFile& model) {
  const Keys keys(model.metadata);
  ASSIGN_OR_RETURN(const int count, keys.Int("split.count", 1));
  ASSIGN_OR_RETURN(const int own, keys.Int("split.no", 0));
  if (count == 1 && own == 0) return OkStatus();
  if (count < 1 || count > static_cast<int>(kModelFilesMax) || own < 0 || own >= count)
    return base::InvalidArgument("keys 'split.no' ", own, " and 'split.count' ", count);
  if (own != 0) {
    ASSIGN_OR_RETURN(const std::string first, PathOf(path, own, 0, count));
    return base::InvalidArgument("is part ", own + 1, " of ", count, "; open the first one, ",
                                 first);
  }
  for (int shard = 1; shard < count; ++shard) {
    ASSIGN_OR_RETURN(const std::string next, PathOf(path, 0, shard, count));
    RETURN_IF_ERROR(AddShard(next, shard, count, model));
  }
  ASSIGN_OR_RETURN(const int tensors, keys.Int("split.tensors.count", 0));
  return CheckTensors(model, tensors);
}

}  // namespace thermocline::model
