// Reads the keys of AltUp (model/altup.h).
#include "engine/model/altup.h"

#include <algorithm>

#include "engine/model/gguf/attention.h"

namespace thermocline::model {

Status ReadGgufAltUp(const ModelFile& model, const Keys& keys, const std::string& prefix,
                     ModelConfig& c) {
  if (!c.architecture->altup) return OkStatus();
  AltUpConfig& a = c.altup;
  constexpr int kKvLayers = 20;  // if the file gives none. Source: llama.cpp's gemma3n
  ASSIGN_OR_RETURN(a.streams, keys.Int(prefix + "altup.num_inputs"));
  RETURN_IF_ERROR(CheckAltUpStreams("altup.num_inputs", a.streams));
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
  if (!keys.Has(key)) a.cuts = DefaultGateCuts(c.num_hidden_layers);
  for (double& cut : a.cuts) cut = std::max(cut, 0.0);  // a share of 0 is minus infinity
  return OkStatus();
}

}  // namespace thermocline::model
