// Reads the fields of AltUp (model/altup.h), in both formats.
#include <algorithm>
#include <cmath>

#include "engine/base/index.h"
#include "engine/model/gguf_attention.h"
#include "engine/model/hf_config.h"
#include "engine/model/hf_fields.h"

namespace thermocline::model {
namespace {

// The default activation sparsity if a file gives none: in the first ten layers the lowest 95% of
// the gates are cut, so about a twentieth of the neurons stay active. Models of at most ten layers
// have no cut. Source: transformers' Gemma3nTextConfig.
constexpr int kCutLayers = 10;
constexpr double kCutShare = 0.95;
constexpr int kLayersMax = 1024;

Status CheckStreams(const char* name, int streams) {
  if (streams >= 2) return OkStatus();
  return base::InvalidArgument(name, " is ", streams, "; a model of this family has two at least");
}

// The inverse of the normal distribution; 0 if no gate is cut.
double CutOfShare(double share) {
  if (share <= 0) return 0;
  double low = -10, high = 10;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < share ? low : high) = middle;
  }
  return (low + high) / 2;
}

std::vector<double> FirstLayersCut(int layers) {
  std::vector<double> cuts(std::clamp(layers, 0, kLayersMax));
  for (int l = 0; layers > kCutLayers && l < kCutLayers; ++l) cuts[l] = CutOfShare(kCutShare);
  return cuts;
}

Result<std::vector<double>> HuggingFaceCuts(const Json& json, int layers) {
  const Json* pattern = hf::FindFirst(json, {"activation_sparsity_pattern"});
  if (pattern == nullptr) return FirstLayersCut(layers);
  if (layers < 1 || layers > kLayersMax) return std::vector<double>();  // ValidateConfig rejects it
  if (pattern->is_array() && base::IntSize(pattern->as_array()) != layers)
    return base::InvalidArgument("field 'activation_sparsity_pattern' has ",
                                 pattern->as_array().size(), " items for ", layers, " layers");
  const Json::Array shares =
      pattern->is_array() ? pattern->as_array() : Json::Array(layers, *pattern);
  std::vector<double> cuts;
  for (const Json& share : shares) {
    if (!share.is_number() || !(share.as_double() >= 0 && share.as_double() < 1))
      return base::InvalidArgument("field 'activation_sparsity_pattern' holds ", share.Dump(),
                                   ", not a share of neurons in [0, 1)");
    cuts.push_back(CutOfShare(share.as_double()));
  }
  return cuts;
}

}  // namespace

Status ReadHuggingFaceAltUp(const Json& json, ModelConfig& c) {
  if (!c.architecture->altup) return OkStatus();
  AltUpConfig& a = c.altup;
  c.attention_scale = 1;
  ASSIGN_OR_RETURN(a.streams, hf::Int(json, {"altup_num_inputs"}));
  RETURN_IF_ERROR(CheckStreams("altup_num_inputs", a.streams));
  ASSIGN_OR_RETURN(a.laurel_rank, hf::Int(json, {"laurel_rank"}));
  ASSIGN_OR_RETURN(a.embedding_dim, hf::Int(json, {"hidden_size_per_layer_input"}));
  ASSIGN_OR_RETURN(a.shared_kv_layers, hf::Int(json, {"num_kv_shared_layers"}));
  ASSIGN_OR_RETURN(const int active, hf::Int(json, {"altup_active_idx"}, 0));
  if (active != 0) return base::Unimplemented("altup_active_idx ", active, " is not supported");
  if (!hf::Flag(json, "altup_correct_scale", true))
    return base::Unimplemented("altup_correct_scale = false is not supported");
  ASSIGN_OR_RETURN(a.cuts, HuggingFaceCuts(json, c.num_hidden_layers));
  return OkStatus();
}

Status ReadGgufAltUp(const ModelFile& model, const Keys& keys, const std::string& prefix,
                     ModelConfig& c) {
  if (!c.architecture->altup) return OkStatus();
  AltUpConfig& a = c.altup;
  constexpr int kKvLayers = 20;  // if the file gives none. Source: llama.cpp's gemma3n
  ASSIGN_OR_RETURN(a.streams, keys.Int(prefix + "altup.num_inputs"));
  RETURN_IF_ERROR(CheckStreams("altup.num_inputs", a.streams));
  ASSIGN_OR_RETURN(a.embedding_dim, keys.Int(prefix + "embedding_length_per_layer_input"));
  ASSIGN_OR_RETURN(a.shared_kv_layers, keys.Int(prefix + "attention.shared_kv_layers",
                                                std::max(0, c.num_hidden_layers - kKvLayers)));
  ASSIGN_OR_RETURN(const int active, keys.Int(prefix + "altup.active_idx", 0));
  if (active != 0)
    return base::Unimplemented("key '", prefix, "altup.active_idx' is ", active,
                               ", which is not supported");
  const TensorInfo* laurel = model.Find("blk.0.laurel_l.weight");
  if (laurel == nullptr) return base::InvalidArgument("tensor 'blk.0.laurel_l.weight' is missing");
  a.laurel_rank = static_cast<int>(std::min<std::int64_t>(laurel->rows, INT32_MAX));
  const std::string key = prefix + "activation_sparsity_scale";
  ASSIGN_OR_RETURN(a.cuts, keys.Numbers(key));
  if (!keys.Has(key)) a.cuts = FirstLayersCut(c.num_hidden_layers);
  for (double& cut : a.cuts) cut = std::max(cut, 0.0);  // a share of 0 is minus infinity
  return OkStatus();
}

}  // namespace thermocline::model
