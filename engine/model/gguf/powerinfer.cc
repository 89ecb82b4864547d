#include "engine/model/gguf/powerinfer.h"

#include <algorithm>
#include <array>

namespace thermocline::model {
namespace {

Status RenameDownBias(ModelFile& model) {
  constexpr std::string_view kTheirs = ".ffn_down_t.bias";
  for (TensorInfo& tensor : model.tensors) {
    if (!tensor.name.ends_with(kTheirs)) continue;
    const std::string name =
        tensor.name.substr(0, tensor.name.size() - kTheirs.size()) + ".ffn_down.bias";
    if (model.Find(name) != nullptr)
      return base::InvalidArgument("tensor '", tensor.name, "' is there as '", name, "' too");
    tensor.name = name;
  }
  return OkStatus();
}

Status CheckDown(const ModelFile& model, const std::string& prefix) {
  if (model.Find(prefix + "ffn_down.weight") == nullptr ||
      model.Find(prefix + "ffn_down_t.weight") == nullptr)
    return OkStatus();
  return base::InvalidArgument("tensor '", prefix, "ffn_down.weight' is there as '", prefix,
                               "ffn_down_t.weight' too");
}

Result<const TensorInfo*> FindPredictor(const ModelFile& model, const std::string& name) {
  const TensorInfo* tensor = model.Find(name);
  if (tensor == nullptr) {
    return base::InvalidArgument("tensor '", name,
                                 "' is missing: PowerInfer's models have a predictor (fc1, fc2) in "
                                 "every layer");
  }
  return tensor;
}

Status CheckPredictor(const ModelFile& model, const std::string& prefix) {
  ASSIGN_OR_RETURN(const TensorInfo* in, FindPredictor(model, prefix + "fc1.weight"));
  ASSIGN_OR_RETURN(const TensorInfo* out, FindPredictor(model, prefix + "fc2.weight"));
  const auto check = [](const TensorInfo& tensor, std::int64_t rows, std::int64_t cols) {
    if (tensor.num_dims == 2 && tensor.rows == rows && tensor.cols == cols) return OkStatus();
    return base::InvalidArgument("tensor '", tensor.name, "' has the shape [", tensor.rows, ", ",
                                 tensor.cols, "], expected [", rows, ", ", cols, "]");
  };
  RETURN_IF_ERROR(check(*in, in->rows, model.config.hidden_size));
  return check(*out, model.config.intermediate_size, in->rows);
}

}  // namespace

Status ReadPowerInfer(ModelFile& model) {
  RETURN_IF_ERROR(RenameDownBias(model));
  // Predictors of any layer suffice: a file that lacks some is rejected with the name of the
  // missing tensor.
  const bool predictors =
      model.powerinfer ||
      std::any_of(model.tensors.begin(), model.tensors.end(), [](const TensorInfo& tensor) {
        return tensor.name.starts_with("blk.") &&
               (tensor.name.ends_with(".fc1.weight") || tensor.name.ends_with(".fc2.weight"));
      });
  if (predictors && !model.config.sparse_threshold.has_value()) model.config.sparse_threshold = 0;
  for (int i = 0; i < model.config.num_hidden_layers; ++i) {
    const std::string prefix = StrCat("blk.", i, ".");
    RETURN_IF_ERROR(CheckDown(model, prefix));
    if (predictors) RETURN_IF_ERROR(CheckPredictor(model, prefix));
  }
  return OkStatus();
}

Result<Activation> PowerInferActivation(const Architecture& architecture) {
  struct Graph {
    std::string_view architecture;
    Activation activation;
  };
  constexpr std::array kGraphs = {
      Graph{"llama", Activation::kRelu},
      Graph{"bamboo", Activation::kDRelu},
      Graph{"falcon", Activation::kRelu},
      Graph{"opt", Activation::kRelu},
  };
  for (const Graph& graph : kGraphs) {
    if (graph.architecture == architecture.name) return graph.activation;
  }
  return base::Unimplemented(
      "architecture '", architecture.name,
      "' in a PowerInfer file (magic PWRI) is not supported: PowerInfer has sparse graphs of "
      "llama, bamboo, falcon and opt alone");
}

}  // namespace thermocline::model
