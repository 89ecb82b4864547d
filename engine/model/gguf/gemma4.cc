// Gemma 4 in GGUF's keys: heads that differ by layer, networks of two sizes, shared keys.
#include <algorithm>

#include "engine/base/index.h"
#include "engine/base/strings.h"
#include "engine/model/gguf/attention.h"

namespace thermocline::model {
namespace {

// Returns the sizes of all layers' networks; empty if they are equal.
Result<std::vector<int>> NetworkSizes(const Keys& keys, const std::string& prefix, int layers) {
  ASSIGN_OR_RETURN(auto sizes, keys.IntsByLayer(prefix + "feed_forward_length", layers));
  const bool equal =
      std::all_of(sizes.begin(), sizes.end(), [&](int size) { return size == sizes.front(); });
  return equal ? std::vector<int>() : std::move(sizes);
}

// Reads the kv heads of layers with a window and without one.
Status ReadKvHeads(const Keys& keys, const std::string& prefix, ModelConfig& c) {
  const std::string key = prefix + "attention.head_count_kv";
  ASSIGN_OR_RETURN(const auto heads, keys.IntsByLayer(key, c.num_hidden_layers));
  c.num_key_value_heads = c.window_kv_heads = 0;
  for (int layer = 0; layer < c.num_hidden_layers; ++layer) {
    int& of = c.WindowOf(layer) > 0 ? c.window_kv_heads : c.num_key_value_heads;
    if (of != 0 && of != heads[layer])
      return base::Unimplemented("key '", key, "' differs among layers ",
                                 c.WindowOf(layer) > 0 ? "with" : "without",
                                 " a window, which is not supported");
    of = heads[layer];
  }
  if (c.window_kv_heads == 0) c.window_kv_heads = c.num_key_value_heads;
  return OkStatus();
}

// The layers without a window have no V if the first of them lacks it.
bool LacksValues(const ModelFile& model, const ModelConfig& c) {
  for (int layer = 0; layer < c.NumKvLayers(); ++layer) {
    if (c.WindowOf(layer) == 0)
      return model.Find(StrCat("blk.", layer, ".attn_v.weight")) == nullptr &&
             model.Find(StrCat("blk.", layer, ".attn_qkv.weight")) == nullptr;
  }
  return false;
}

}  // namespace

Status ReadGgufGemma4(const ModelFile& model, const Keys& keys, const std::string& prefix,
                      ModelConfig& c) {
  if (!c.architecture->window_heads) return OkStatus();
  if (c.num_hidden_layers < 1 || c.num_hidden_layers > kLayersMax)
    return OkStatus();  // ValidateConfig rejects it
  ASSIGN_OR_RETURN(c.window_head_dim, keys.Int(prefix + "attention.key_length_swa", c.head_dim));
  ASSIGN_OR_RETURN(const int values,
                   keys.Int(prefix + "attention.value_length_swa", c.window_head_dim));
  if (values != c.window_head_dim)
    return base::Unimplemented("heads whose keys (", c.window_head_dim, ") and values (", values,
                               ") differ in size are not supported");
  ASSIGN_OR_RETURN(c.altup.shared_kv_layers, keys.Int(prefix + "attention.shared_kv_layers", 0));
  ASSIGN_OR_RETURN(c.altup.embedding_dim, keys.Int(prefix + "embedding_length_per_layer_input", 0));
  if (c.altup.shared_kv_layers < 0 || c.altup.shared_kv_layers >= c.num_hidden_layers)
    return OkStatus();  // ValidateConfig rejects it
  RETURN_IF_ERROR(ReadKvHeads(keys, prefix, c));
  ASSIGN_OR_RETURN(c.network_sizes, NetworkSizes(keys, prefix, c.num_hidden_layers));
  c.keys_as_values = LacksValues(model, c);
  // Without it the rotation of layers without a window would be another one: short answers are
  // fluent, and long ones break.
  if (model.Find("rope_freqs.weight") == nullptr)
    return base::InvalidArgument("tensor 'rope_freqs.weight' is missing: it says which dimensions ",
                                 "are rotated");
  return OkStatus();
}

}  // namespace thermocline::model
