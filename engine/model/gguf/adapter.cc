#include "engine/model/gguf/adapter.h"

#include <cmath>
#include <span>

#include "engine/base/file.h"
#include "engine/model/gguf/container.h"
#include "engine/model/gguf/keys.h"
#include "kernels/quantize.h"

namespace thermocline::model {
namespace {

constexpr std::string_view kFirst = ".lora_a", kSecond = ".lora_b";
constexpr std::int64_t kElementsMax = std::int64_t{1} << 30;

Status CheckKind(const Keys& keys, const ModelConfig& config) {
  ASSIGN_OR_RETURN(const std::string type, keys.String("general.type"));
  if (type != "adapter")
    return base::InvalidArgument("general.type is '", type,
                                 "': this is no adapter; a model is given as --model");
  ASSIGN_OR_RETURN(const std::string kind, keys.String("adapter.type"));
  if (kind != "lora") return base::Unimplemented("adapters of type '", kind, "' are not supported");
  if (keys.Has("adapter.alora.invocation_tokens"))
    return base::Unimplemented("adapters that begin with a token (aLoRA) are not supported");
  ASSIGN_OR_RETURN(const std::string family, keys.String("general.architecture"));
  if (family != config.architecture->name)
    return base::InvalidArgument("is made for a model of the architecture '", family,
                                 "', and this one is '", config.architecture->name, "'");
  return OkStatus();
}

Result<std::vector<float>> FactorFloats(const base::File& file, const TensorInfo& tensor) {
  if (!tensor.type->dtype.has_value() || tensor.rows * tensor.cols > kElementsMax)
    return base::Unimplemented("tensor '", tensor.name, "' is ", tensor.type->name, " [",
                               tensor.rows, ", ", tensor.cols, "]");
  std::vector<std::byte> stored(tensor.bytes);
  RETURN_IF_ERROR(file.ReadAt(tensor.offset, stored));
  std::vector<float> out(static_cast<std::size_t>(tensor.rows * tensor.cols));
  for (std::int64_t row = 0; row < tensor.rows; ++row) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(stored.data());
    kernels::DequantizeRow(*tensor.type->dtype, bytes + row * tensor.row_bytes(), tensor.columns(),
                           out.data() + row * tensor.cols);
  }
  return out;
}

}  // namespace

Result<Adapter> OpenGgufAdapter(const std::string& path, const ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto file, base::OpenFile(path));
  ASSIGN_OR_RETURN(const GgufContainer container, ReadGgufContainer(*file, 0));
  const Keys keys(container.metadata);
  RETURN_IF_ERROR(CheckKind(keys, config));
  ASSIGN_OR_RETURN(const double alpha, keys.Double("adapter.lora.alpha", 0.0));
  Adapter adapter;
  for (const TensorInfo& tensor : container.tensors) {
    const bool first = tensor.name.ends_with(kFirst);
    if (!first && !tensor.name.ends_with(kSecond))
      return base::Unimplemented("tensor '", tensor.name,
                                 "' is no factor of a matrix (lora_a, lora_b)");
    if (tensor.num_dims != 2)
      return base::Unimplemented("tensor '", tensor.name,
                                 "': adapters of experts are not supported");
    ASSIGN_OR_RETURN(auto data, FactorFloats(*file, tensor));
    RETURN_IF_ERROR(AddFactor({.matrix = tensor.name.substr(0, tensor.name.size() - kFirst.size()),
                               .first = first,
                               .rows = tensor.rows,
                               .cols = tensor.cols,
                               .data = std::move(data)},
                              adapter));
  }
  for (auto& [matrix, part] : adapter.parts)
    if (alpha != 0 && part.rank > 0) part.scale = static_cast<float>(alpha / part.rank);
  return adapter;
}

}  // namespace thermocline::model
