// Recurrent layers in GGUF's keys: their positions, and the sizes of their state.
#include <algorithm>

#include "engine/base/index.h"
#include "engine/model/gguf/attention.h"

namespace thermocline::model {
namespace {

// Reads Qwen's form: a list, or every layer but the last of a period.
Result<std::vector<Mixer>> MixersByPeriod(const Keys& keys, const Json& metadata,
                                          const std::string& prefix, const ModelConfig& c) {
  std::vector<Mixer> mixers(c.num_hidden_layers, c.architecture->recurrent);
  const std::string key = prefix + "attention.recurrent_layers";
  if (const Json* list = metadata.Find(key); list != nullptr && list->is_array()) {
    const Json::Array& layers = list->as_array();
    if (base::IntSize(layers) < c.num_hidden_layers)
      return base::InvalidArgument("key '", key, "' has ", layers.size(), " items for ",
                                   c.num_hidden_layers, " layers");
    for (std::size_t l = 0; l < mixers.size(); ++l) {
      if (!layers[l].is_bool() && !layers[l].is_int())
        return base::InvalidArgument("key '", key, "' holds a ", layers[l].type_name());
      const bool recurrent = layers[l].is_bool() ? layers[l].as_bool() : layers[l].as_int() != 0;
      if (!recurrent) mixers[l] = Mixer::kAttention;
    }
    return mixers;
  }
  constexpr int kQwenPeriod = 4;
  ASSIGN_OR_RETURN(const int period, keys.Int(prefix + "full_attention_interval", kQwenPeriod));
  if (period < 1)
    return base::InvalidArgument("key '", prefix, "full_attention_interval' is ", period);
  for (int layer = period - 1; layer < c.num_hidden_layers; layer += period)
    mixers[layer] = Mixer::kAttention;
  return mixers;
}

// Reads the form of other families: a layer without kv heads has no attention. A block of Nemotron
// has only one part.
Status ReadParts(const Keys& keys, const std::string& prefix, ModelConfig& c) {
  RecurrentConfig& r = c.recurrent;
  const int layers = c.num_hidden_layers;
  ASSIGN_OR_RETURN(const auto kv, keys.IntsByLayer(prefix + "attention.head_count_kv", layers));
  r.mixers.assign(layers, r.kind);
  for (int layer = 0; layer < layers; ++layer)
    if (kv[layer] > 0) r.mixers[layer] = Mixer::kAttention;
  if (!c.architecture->one_part) return OkStatus();
  ASSIGN_OR_RETURN(const auto ffn, keys.IntsByLayer(prefix + "feed_forward_length", layers));
  r.networks.assign(layers, false);
  for (int layer = 0; layer < layers; ++layer) {
    if (ffn[layer] == 0) continue;
    r.networks[layer] = true;
    r.mixers[layer] = Mixer::kNone;
  }
  return OkStatus();
}

Status ReadState(const Keys& keys, const std::string& prefix, RecurrentConfig& r) {
  if (r.kind == Mixer::kShortConv) {
    ASSIGN_OR_RETURN(r.taps, keys.Int(prefix + "shortconv.l_cache"));
    return OkStatus();
  }
  ASSIGN_OR_RETURN(r.taps, keys.Int(prefix + "ssm.conv_kernel"));
  ASSIGN_OR_RETURN(r.key_heads, keys.Int(prefix + "ssm.group_count"));
  ASSIGN_OR_RETURN(r.heads, keys.Int(prefix + "ssm.time_step_rank"));
  ASSIGN_OR_RETURN(r.key_dim, keys.Int(prefix + "ssm.state_size"));
  ASSIGN_OR_RETURN(const int inner, keys.Int(prefix + "ssm.inner_size"));
  if (r.heads < 1 || inner % r.heads != 0)
    return base::InvalidArgument("key '", prefix, "ssm.inner_size' is ", inner, " for ", r.heads,
                                 " heads (ssm.time_step_rank)");
  r.value_dim = inner / r.heads;
  return OkStatus();
}

}  // namespace

Status ReadGgufRecurrent(const Keys& keys, const Json& metadata, const std::string& prefix,
                         ModelConfig& c) {
  c.unrotated = c.architecture->recurrent == Mixer::kMamba2;
  if (c.architecture->recurrent == Mixer::kAttention) return OkStatus();
  if (c.num_hidden_layers < 1 || c.num_hidden_layers > kLayersMax)
    return base::InvalidArgument("key '", prefix, "block_count' is ", c.num_hidden_layers,
                                 "; it must lie in [1, ", kLayersMax, "]");
  RecurrentConfig& r = c.recurrent;
  r.kind = c.architecture->recurrent;
  r.tiled = c.architecture->tiled_heads;
  if (r.kind == Mixer::kDeltaNet) {
    ASSIGN_OR_RETURN(r.mixers, MixersByPeriod(keys, metadata, prefix, c));
  } else {
    RETURN_IF_ERROR(ReadParts(keys, prefix, c));
  }
  // In Granite's files the key means that attention is not rotated, in Bamba's that it is.
  if (c.unrotated && !c.architecture->one_part) {
    ASSIGN_OR_RETURN(const bool rotated, keys.Bool(prefix + "rope.scaling.finetuned", false));
    c.unrotated = !rotated;
  }
  if (r.layers() == 0) {  // attention everywhere: a model of the family without recurrent layers
    r = {};
    return OkStatus();
  }
  return ReadState(keys, prefix, r);
}

}  // namespace thermocline::model
