// Gemma 4 in config.json: heads that differ by layer, networks of two sizes, shared keys.
#include <algorithm>

#include "engine/base/index.h"
#include "engine/base/strings.h"
#include "engine/model/huggingface/config.h"
#include "engine/model/huggingface/fields.h"

namespace thermocline::model {
namespace {

// Returns a field of layers without a window: a field of its own in older files, and in newer ones
// a change of such a layer's config.
Result<int> WholeField(const Json& json, const char* older, const char* changed, int absent) {
  ASSIGN_OR_RETURN(const int field, hf::Int(json, {older}, 0));
  if (field > 0) return field;
  const Json* layers = json.Find("per_layer_config");
  if (layers == nullptr || !layers->is_object()) return absent;
  std::optional<int> found;
  for (const auto& [layer, change] : layers->as_object()) {
    if (!change.is_object()) continue;
    ASSIGN_OR_RETURN(const int value, hf::Int(change, {changed}, absent));
    if (found.has_value() && *found != value)
      return base::Unimplemented("per_layer_config with ", changed, " ", *found, " and ", value,
                                 " is not supported");
    found = value;
  }
  return found.value_or(absent);
}

}  // namespace

Status ReadHuggingFaceGemma4(const Json& json, ModelConfig& c) {
  if (!c.architecture->window_heads) return OkStatus();
  constexpr int kWholeHeadDim = 512;  // the default of transformers
  c.attention_scale = 1;
  c.window_head_dim = c.head_dim;
  c.window_kv_heads = c.num_key_value_heads;
  ASSIGN_OR_RETURN(c.head_dim, WholeField(json, "global_head_dim", "head_dim", kWholeHeadDim));
  c.keys_as_values = hf::Flag(json, "attention_k_eq_v", false);
  if (c.keys_as_values) {
    ASSIGN_OR_RETURN(c.num_key_value_heads, WholeField(json, "num_global_key_value_heads",
                                                       "num_key_value_heads", c.window_kv_heads));
  }
  ASSIGN_OR_RETURN(c.altup.shared_kv_layers, hf::Int(json, {"num_kv_shared_layers"}, 0));
  ASSIGN_OR_RETURN(c.altup.embedding_dim, hf::Int(json, {"hidden_size_per_layer_input"}, 0));
  if (!hf::Flag(json, "enable_moe_block", false)) c.experts = {};
  if (!hf::Flag(json, "use_double_wide_mlp", false)) return OkStatus();
  const int narrow = c.intermediate_size;
  for (int layer = 0; layer < std::min(c.num_hidden_layers, kLayersMax); ++layer)
    c.network_sizes.push_back(layer < c.NumKvLayers() ? narrow : 2 * narrow);
  if (c.altup.shared_kv_layers > 0) c.intermediate_size = 2 * narrow;
  return OkStatus();
}

}  // namespace thermocline::model
