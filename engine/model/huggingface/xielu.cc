#include "engine/model/huggingface/xielu.h"

#include <array>
#include <map>
#include <string_view>

#include "engine/base/bytes.h"
#include "engine/base/strings.h"
#include "kernels/quantize.h"

namespace thermocline::model {
namespace {

struct Parameter {
  std::string_view name;
  double XieluConfig::*field;
};
constexpr std::array kParameters = {
    Parameter{"alpha_p", &XieluConfig::alpha_p}, Parameter{"alpha_n", &XieluConfig::alpha_n},
    Parameter{"beta", &XieluConfig::beta}, Parameter{"eps", &XieluConfig::eps}};

std::string NameOf(int layer, std::string_view parameter) {
  return StrCat("model.layers.", layer, ".mlp.act_fn.", parameter);
}

Result<float> ReadOne(const StoredTensor& tensor, const ModelFile& model) {
  static const std::map<std::string, kernels::DType> kTypes = {{"F32", kernels::DType::kF32},
                                                               {"F16", kernels::DType::kF16},
                                                               {"BF16", kernels::DType::kBF16}};
  const auto type = kTypes.find(tensor.type);
  const bool one = tensor.dims.empty() || tensor.dims == std::vector<std::int64_t>{1};
  if (type == kTypes.end() || !one)
    return base::InvalidArgument("tensor '", tensor.name, "' is not one number of a known type");
  std::array<std::byte, sizeof(float)> bytes = {};
  const auto used = std::span(bytes).first(type->second == kernels::DType::kF32 ? 4 : 2);
  const base::File& file = *model.files[tensor.file];
  RETURN_IF_ERROR(CheckInside(tensor, used.size(), file));
  RETURN_IF_ERROR(file.ReadAt(tensor.offset(), used));
  float value = 0;
  kernels::DequantizeRow(type->second, base::Octets(bytes.data()), 1, &value);
  return value;
}

}  // namespace

Status TakeXielu(std::vector<StoredTensor>& tensors, ModelFile& model) {
  if (model.config.hidden_act != Activation::kXielu) return OkStatus();
  std::map<std::string, const StoredTensor*> found;
  for (const StoredTensor& tensor : tensors)
    if (tensor.name.find(".act_fn.") != std::string::npos) found[tensor.name] = &tensor;
  for (int layer = 0; layer < model.config.num_hidden_layers; ++layer) {
    for (const Parameter& parameter : kParameters) {
      const auto at = found.find(NameOf(layer, parameter.name));
      if (at == found.end())
        return base::InvalidArgument("tensor '", NameOf(layer, parameter.name), "' is missing");
      ASSIGN_OR_RETURN(model.config.xielu[layer].*parameter.field, ReadOne(*at->second, model));
    }
  }
  std::erase_if(tensors, [](const StoredTensor& tensor) {
    return tensor.name.find(".act_fn.") != std::string::npos;
  });
  return OkStatus();
}

}  // namespace thermocline::model
