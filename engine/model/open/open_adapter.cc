#include "engine/model/open/open_adapter.h"

#include <cmath>
#include <span>

#include "engine/base/file.h"
#include "engine/base/hash.h"
#include "engine/model/gguf/adapter.h"
#include "engine/model/huggingface/adapter.h"

namespace thermocline::model {
namespace {

// Both factors are there and fit each other.
Status CheckPart(const std::string& matrix, const AdapterPart& part) {
  if (part.a.empty() || part.b.empty())
    return base::DataLoss("matrix '", matrix, "' has only one of lora_a and lora_b");
  if (part.b.size() != static_cast<std::size_t>(part.rows) * static_cast<std::size_t>(part.rank))
    return base::DataLoss("matrix '", matrix, "': lora_a and lora_b have different ranks");
  for (const std::vector<float>* factor : {&part.a, &part.b}) {
    for (const float value : *factor) {
      if (!std::isfinite(value))
        return base::DataLoss("matrix '", matrix, "' holds a number that is not finite");
    }
  }
  if (!std::isfinite(part.scale))
    return base::DataLoss("matrix '", matrix, "' has the scale ", part.scale);
  return OkStatus();
}

std::string HashOf(const Adapter& adapter) {
  base::Hasher hasher;
  for (const auto& [matrix, part] : adapter.parts) {
    hasher.Add(matrix);
    hasher.Add(std::as_bytes(std::span(&part.scale, 1)));
    hasher.Add(std::as_bytes(std::span(part.a)));
    hasher.Add(std::as_bytes(std::span(part.b)));
  }
  return hasher.Digest().Hex();
}

}  // namespace

Result<Adapter> OpenAdapter(const std::string& path, const ModelConfig& config) {
  if (!base::PathExists(path)) return base::NotFound("LoRA adapter ", path, " does not exist");
  auto adapter =
      base::IsDirectory(path) ? OpenPeftAdapter(path, config) : OpenGgufAdapter(path, config);
  if (!adapter.ok()) return adapter.status().Annotate(StrCat("LoRA adapter ", path));
  adapter->path = path;
  for (const auto& [matrix, part] : adapter->parts)
    RETURN_IF_ERROR(CheckPart(matrix, part).Annotate(StrCat("LoRA adapter ", path)));
  if (adapter->parts.empty()) return base::DataLoss("LoRA adapter ", path, ": changes no matrix");
  adapter->hash = HashOf(*adapter);
  return adapter;
}

}  // namespace thermocline::model
