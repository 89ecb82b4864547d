// Reads the fields of AltUp (model/altup.h) from config.json.
#include "engine/model/altup.h"

#include "engine/base/index.h"
#include "engine/model/huggingface/config.h"
#include "engine/model/huggingface/fields.h"

namespace thermocline::model {
namespace {

Result<std::vector<double>> HuggingFaceCuts(const Json& json, int layers) {
  const Json* pattern = hf::FindFirst(json, {"activation_sparsity_pattern"});
  if (pattern == nullptr) return DefaultGateCuts(layers);
  if (layers < 1 || layers > kAltUpLayersMax)
    return std::vector<double>();  // ValidateConfig rejects it
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
    cuts.push_back(GateCutOfShare(share.as_double()));
  }
  return cuts;
}

}  // namespace

Status ReadHuggingFaceAltUp(const Json& json, ModelConfig& c) {
  if (!c.architecture->altup) return OkStatus();
  AltUpConfig& a = c.altup;
  c.attention_scale = 1;
  ASSIGN_OR_RETURN(a.streams, hf::Int(json, {"altup_num_inputs"}));
  RETURN_IF_ERROR(CheckAltUpStreams("altup_num_inputs", a.streams));
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

}  // namespace thermocline::model
