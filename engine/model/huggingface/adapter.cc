#include "engine/model/huggingface/adapter.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <span>

#include "engine/base/file.h"
#include "engine/base/json_limits.h"
#include "engine/model/huggingface/fields.h"
#include "engine/model/huggingface/names.h"
#include "engine/model/huggingface/safetensors.h"
#include "engine/model/model_file.h"
#include "kernels/quantize.h"

namespace thermocline::model {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::string_view kPeftFirst = ".lora_A.weight", kPeftSecond = ".lora_B.weight";

struct PeftConfig {
  double alpha = 0;
  bool root = false;  // the scale is alpha / sqrt(r)
};

Result<PeftConfig> ReadConfig(const std::string& path) {
  constexpr std::uint64_t kBytesMax = 1 << 20;
  ASSIGN_OR_RETURN(const std::string text, base::ReadFileToString(path, kBytesMax));
  const auto json = base::ParseJsonOf(text, kBytesMax);
  if (!json.ok()) return json.status().Annotate(path);
  const std::string kind = hf::String(*json, {"peft_type"}, "");
  if (kind != "LORA") return base::Unimplemented("peft_type '", kind, "' is not supported");
  for (const char* flag : {"use_dora", "fan_in_fan_out", "use_qalora"})
    if (hf::Flag(*json, flag, false)) return base::Unimplemented(flag, " is not supported");
  for (const char* pattern : {"alpha_pattern", "alora_invocation_tokens"}) {
    const Json* found = json->Find(pattern);
    const bool empty = found == nullptr || found->is_null() ||
                       (found->is_object() && found->as_object().empty()) ||
                       (found->is_array() && found->as_array().empty());
    if (!empty) return base::Unimplemented(pattern, " is not supported");
  }
  if (const std::string bias = hf::String(*json, {"bias"}, "none"); bias != "none")
    return base::Unimplemented("bias '", bias, "' is not supported");
  PeftConfig config{.root = hf::Flag(*json, "use_rslora", false)};
  ASSIGN_OR_RETURN(config.alpha, hf::Double(*json, {"lora_alpha"}, 8));
  return config;
}

Result<std::vector<float>> ReadFloats(const base::File& file, const StoredTensor& tensor) {
  static const std::map<std::string, kernels::DType> kTypes = {{"F32", kernels::DType::kF32},
                                                               {"F16", kernels::DType::kF16},
                                                               {"BF16", kernels::DType::kBF16}};
  constexpr std::int64_t kSideMax = 1 << 22, kFloatsMax = std::int64_t{1} << 30;
  const auto type = kTypes.find(tensor.type);
  if (type == kTypes.end())
    return base::Unimplemented("tensor '", tensor.name, "' has the type ", tensor.type);
  const std::int64_t rows = tensor.dims[0], cols = tensor.dims[1];
  if (rows < 1 || cols < 1 || rows > kSideMax || cols > kSideMax || rows * cols > kFloatsMax)
    return base::DataLoss("tensor '", tensor.name, "' is ", rows, " x ", cols);
  const std::int64_t elements = rows * cols;
  const std::int64_t bytes = elements * (type->second == kernels::DType::kF32 ? 4 : 2);
  RETURN_IF_ERROR(CheckInside(tensor, bytes, file));
  std::vector<std::byte> stored(static_cast<std::size_t>(bytes));
  RETURN_IF_ERROR(file.ReadAt(tensor.offset(), stored));
  std::vector<float> out(static_cast<std::size_t>(elements));
  kernels::DequantizeRow(type->second, reinterpret_cast<const std::uint8_t*>(stored.data()),
                         static_cast<int>(elements), out.data());
  return out;
}

// Rows in the order of GGUF, where a head's rotary pairs lie beside each other.
void OrderRows(const ModelConfig& config, AdapterFactor& factor) {
  const bool pairs =
      config.architecture->position == Position::kRotaryPairs && !config.architecture->hf_pairs;
  const bool rotated =
      factor.matrix.ends_with(".attn_q.weight") || factor.matrix.ends_with(".attn_k.weight");
  if (factor.first || !pairs || !rotated || factor.rows % config.head_dim != 0) return;
  const HeadOrder order{.head_dim = config.head_dim, .halves = true};
  const std::size_t cols = static_cast<std::size_t>(factor.cols);
  std::vector<float> ordered(factor.data.size());
  for (std::int64_t row = 0; row < factor.rows; ++row) {
    const float* from = factor.data.data() + order.StoredRow(row) * factor.cols;
    std::copy_n(from, cols, ordered.data() + row * factor.cols);
  }
  factor.data = std::move(ordered);
}

// "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight" is a factor of
// "blk.0.attn_q.weight".
Result<AdapterFactor> FactorOf(const StoredTensor& tensor, const ModelConfig& config) {
  const std::string& name = tensor.name;
  const bool first = name.ends_with(kPeftFirst);
  if (!name.starts_with(kPrefix) || (!first && !name.ends_with(kPeftSecond)) ||
      tensor.dims.size() != 2)
    return base::Unimplemented("tensor '", name, "' is no factor of a matrix (lora_A, lora_B)");
  const std::size_t length = name.size() - kPrefix.size() - kPeftFirst.size();
  const std::string module = name.substr(kPrefix.size(), length);
  ASSIGN_OR_RETURN(const GgufName called, GgufNameOf(module + ".weight", *config.architecture));
  if (called.name.empty() || called.expert >= 0)
    return base::Unimplemented("tensor '", name, "': adapters of this module are not supported");
  return AdapterFactor{.matrix = called.name,
                       .first = first,
                       .rows = tensor.dims[0],
                       .cols = tensor.dims[1],
                       .data = {}};
}

}  // namespace

Result<Adapter> OpenPeftAdapter(const std::string& folder, const ModelConfig& config) {
  const std::filesystem::path in(folder);
  ASSIGN_OR_RETURN(const PeftConfig peft, ReadConfig((in / "adapter_config.json").string()));
  ASSIGN_OR_RETURN(const auto file, base::OpenFile((in / "adapter_model.safetensors").string()));
  ASSIGN_OR_RETURN(const std::vector<StoredTensor> tensors, ReadSafetensors(*file, 0));
  Adapter adapter;
  for (const StoredTensor& tensor : tensors) {
    ASSIGN_OR_RETURN(AdapterFactor factor, FactorOf(tensor, config));
    ASSIGN_OR_RETURN(factor.data, ReadFloats(*file, tensor));
    OrderRows(config, factor);
    RETURN_IF_ERROR(AddFactor(std::move(factor), adapter));
  }
  for (auto& [matrix, part] : adapter.parts) {
    if (part.rank < 1) continue;
    part.scale = static_cast<float>(peft.alpha / (peft.root ? std::sqrt(part.rank) : part.rank));
  }
  return adapter;
}

}  // namespace thermocline::model
