// Reads the layers with a window from Hugging Face's config.json.
#include <algorithm>
#include <array>

#include "engine/base/index.h"
#include "engine/model/huggingface/config.h"
#include "engine/model/huggingface/fields.h"

namespace thermocline::model {
namespace {

using hf::Flag;
using hf::Int;
using hf::List;

// Checks that a list of layers has one item per layer.
Status CheckLength(const char* key, const Json::Array& list, const ModelConfig& c) {
  if (list.empty() || base::IntSize(list) == c.num_hidden_layers) return OkStatus();
  return base::InvalidArgument("field '", key, "' has ", list.size(), " items for ",
                               c.num_hidden_layers, " layers");
}

// The families whose code in transformers has a window; other families ignore the field.
constexpr std::array<std::string_view, 27> kWithWindow = {"mistral",     "muse_glimmer_text",
                                                          "afmoe",       "laguna",
                                                          "mixtral",     "bamboo",
                                                          "ministral3",  "qwen2",
                                                          "qwen3",       "qwen2_moe",
                                                          "qwen3_moe",   "gpt_oss",
                                                          "smollm3",     "gemma2",
                                                          "gemma3_text", "gemma3n_text",
                                                          "phi3",        "olmo3",
                                                          "exaone4",     "cohere2",
                                                          "starcoder2",  "mellum",
                                                          "exaone_moe",  "cohere2_moe",
                                                          "gemma4_text", "gemma4_unified_text",
                                                          "modernbert"};

bool IsNonZero(const Json& item) { return item.is_int() && item.as_int() != 0; }

// Reads SmallThinker's lists of layers with a window and of rotated layers. Only the family's own
// order is supported.
Status ReadLayouts(const Json& json, ModelConfig& c) {
  ASSIGN_OR_RETURN(const Json::Array windows, List(json, {"sliding_window_layout"}));
  ASSIGN_OR_RETURN(const Json::Array rotated, List(json, {"rope_layout"}));
  RETURN_IF_ERROR(CheckLength("sliding_window_layout", windows, c));
  RETURN_IF_ERROR(CheckLength("rope_layout", rotated, c));
  if (std::any_of(windows.begin(), windows.end(), IsNonZero)) {
    ASSIGN_OR_RETURN(c.sliding_window, Int(json, {"sliding_window_size"}));
  }
  for (int layer = 0; layer < base::IntSize(windows); ++layer) {
    if (IsNonZero(windows[layer]) != (c.WindowOf(layer) > 0))
      return base::Unimplemented("sliding_window_layout other than in every layer but each fourth");
  }
  for (int layer = 0; layer < base::IntSize(rotated); ++layer) {
    if (IsNonZero(rotated[layer]) != c.Rotates(layer))
      return base::Unimplemented("rope_layout other than sliding_window_layout is not supported");
  }
  return OkStatus();
}

// Reads the period: a number, or a string of one letter per layer.
Status ReadPeriod(const Json& json, ModelConfig& c) {
  if (c.architecture->hf_name == "modernbert") {
    ASSIGN_OR_RETURN(c.window_period, Int(json, {"global_attn_every_n_layers"}, 0));
  }
  const Json* pattern = hf::FindFirst(json, {"sliding_window_pattern", "_sliding_window_pattern"});
  if (pattern == nullptr || c.architecture->window_place != WindowPlace::kButLast)
    return OkStatus();
  if (pattern->is_string()) c.window_period = base::IntSize(pattern->as_string());
  if (!pattern->is_int()) return OkStatus();
  ASSIGN_OR_RETURN(c.window_period,
                   Int(json, {"sliding_window_pattern", "_sliding_window_pattern"}));
  return OkStatus();
}

// Reads a list of layers with and without a window.
Status ReadWindowedLayers(const Json& json, ModelConfig& c) {
  ASSIGN_OR_RETURN(const Json::Array types, List(json, {"layer_types"}));
  RETURN_IF_ERROR(CheckLength("layer_types", types, c));
  std::vector<bool> windowed;
  for (const Json& type : types) {
    const std::string kind = type.is_string() ? type.as_string() : "";
    const char* window = c.architecture->chunked ? "chunked_attention" : "sliding_attention";
    if (kind != window && kind != "full_attention")
      return base::Unimplemented("layer_types with ", type.Dump(), " are not supported");
    windowed.push_back(kind == window);
  }
  return types.empty() ? OkStatus() : SetWindowedLayers(windowed, c).Annotate("layer_types");
}

// Reads the query heads of each layer, of which layers with a window have another number.
Status ReadQueryHeads(const Json& json, ModelConfig& c) {
  if (!c.architecture->window_queries) return OkStatus();
  constexpr const char* kField = "num_attention_heads_per_layer";
  ASSIGN_OR_RETURN(const Json::Array heads, List(json, {kField}));
  RETURN_IF_ERROR(CheckLength(kField, heads, c));
  std::vector<int> counts;
  for (const Json& count : heads) {
    if (!count.is_int() || count.as_int() < 1 || count.as_int() > kConfigNumberMax)
      return base::InvalidArgument("field '", kField, "' holds ", count.Dump());
    counts.push_back(static_cast<int>(count.as_int()));
  }
  return counts.empty() ? OkStatus() : SetQueryHeads(counts, c).Annotate(kField);
}

// Checks Muse Glimmer's theta of each layer, of which 0 says that it is not rotated.
Status CheckThetas(const Json& json, const ModelConfig& c) {
  ASSIGN_OR_RETURN(const Json::Array thetas, List(json, {"layer_rope_theta"}));
  RETURN_IF_ERROR(CheckLength("layer_rope_theta", thetas, c));
  for (int layer = 0; layer < base::IntSize(thetas); ++layer) {
    const bool rotates = thetas[layer].is_number() && thetas[layer].as_double() != 0;
    if (rotates != c.Rotates(layer))
      return base::Unimplemented("layer_rope_theta ", Json(thetas).Dump(),
                                 " other than 0 in the layers without a window");
  }
  return OkStatus();
}

// Checks the list of layers without rotation (SmolLM3). Only the family's own order is supported.
Status CheckUnrotated(const Json& json, const ModelConfig& c) {
  ASSIGN_OR_RETURN(const Json::Array rotated, List(json, {"no_rope_layers"}));
  RETURN_IF_ERROR(CheckLength("no_rope_layers", rotated, c));
  ASSIGN_OR_RETURN(const int interval,
                   Int(json, {"no_rope_layer_interval"}, c.architecture->unrotated_period));
  if (rotated.empty() && interval != c.architecture->unrotated_period)
    return base::Unimplemented("no_rope_layer_interval ", interval, " is not supported in the ",
                               "architecture '", c.architecture->name, "'");
  for (int layer = 0; layer < base::IntSize(rotated); ++layer) {
    const int never = c.architecture->unrotated_period;
    const bool rotates = never == 0 || (layer + 1) % never != 0;
    if (IsNonZero(rotated[layer]) != rotates)
      return base::Unimplemented("no_rope_layers ", Json(rotated).Dump(), " are not supported in ",
                                 "the architecture '", c.architecture->name, "'");
  }
  return OkStatus();
}

}  // namespace

// The window applies to all layers (mistral), to those from max_window_layers on if it is enabled
// (qwen), or to some of each period.
Status ReadHuggingFaceWindows(const Json& json, ModelConfig& c) {
  // In these families the lists of layers give the recurrent ones (recurrent.cc) or say that all
  // have an indexer.
  if (c.architecture->recurrent != Mixer::kAttention || c.architecture->indexed) return OkStatus();
  if (c.architecture->hf_name == "smallthinker") return ReadLayouts(json, c);
  const bool has = std::find(kWithWindow.begin(), kWithWindow.end(), c.architecture->hf_name) !=
                   kWithWindow.end();
  if (has && Flag(json, "use_sliding_window", true)) {
    ASSIGN_OR_RETURN(c.sliding_window, Int(json, {"sliding_window", "local_attention"}, 0));
    ASSIGN_OR_RETURN(c.max_window_layers, Int(json, {"max_window_layers"}, 0));
  }
  ASSIGN_OR_RETURN(const int lead, Int(json, {"prefix_dense_sliding_window_pattern"}, 1));
  if (lead != 1)
    return base::Unimplemented("prefix_dense_sliding_window_pattern = ", lead,
                               " is not supported: dense layers have no window");
  if (c.architecture->chunked) {
    ASSIGN_OR_RETURN(c.sliding_window, Int(json, {"attention_chunk_size"}, 0));
  } else if (c.architecture->unrotated_period > 0 && c.sliding_window > 0)
    return base::Unimplemented("use_sliding_window = true is not supported in the architecture '",
                               c.architecture->name, "'");
  RETURN_IF_ERROR(ReadPeriod(json, c));
  RETURN_IF_ERROR(ReadWindowedLayers(json, c));
  RETURN_IF_ERROR(ReadQueryHeads(json, c));
  RETURN_IF_ERROR(CheckThetas(json, c));
  return CheckUnrotated(json, c);
}

}  // namespace thermocline::model
