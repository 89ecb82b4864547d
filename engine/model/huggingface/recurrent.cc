// Recurrent layers in Hugging Face's config.json, and their tensors in GGUF's order.
#include "engine/model/huggingface/recurrent.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/bytes.h"
#include "engine/base/index.h"
#include "engine/model/derived_tensor.h"
#include "engine/model/huggingface/config.h"
#include "engine/model/huggingface/fields.h"
#include "kernels/quantize.h"

namespace thermocline::model {
namespace {

using hf::FindFirst;
using hf::Int;
using hf::String;

// Sets a layer's kind, whose name differs by family and by version of transformers.
Status SetLayer(const Json& item, std::size_t layer, ModelConfig& c) {
  RecurrentConfig& r = c.recurrent;
  const std::string kind = item.is_string() ? item.as_string() : "";
  const auto is = [&](std::initializer_list<const char*> names) {
    return std::find(names.begin(), names.end(), kind) != names.end();
  };
  const bool network = is({"moe", "mlp", "E", "-"});
  if (is({"full_attention", "attention", "*"})) {
    r.mixers[layer] = Mixer::kAttention;
  } else if (is({"linear_attention", "mamba", "mamba2", "conv", "M"})) {
    r.mixers[layer] = r.kind;
  } else if (network && c.architecture->one_part) {
    r.mixers[layer] = Mixer::kNone;
    r.networks[layer] = true;
    c.experts.layers[layer] = is({"moe", "E"});
  } else {
    return base::Unimplemented("layer ", layer, " is of the kind ", item.Dump(),
                               ", which is not supported in the architecture '",
                               c.architecture->name, "'");
  }
  return OkStatus();
}

// Returns the kinds of layers, given as a list, a string of one letter each (Nemotron), the indices
// of layers with attention (LFM2), or a period (Qwen3-Next).
Result<Json::Array> LayerKinds(const Json& json, const ModelConfig& c) {
  ASSIGN_OR_RETURN(Json::Array kinds, hf::List(json, {"layer_types", "layers_block_type"}));
  if (!kinds.empty()) return kinds;
  constexpr int kLayersMax = 4096;
  if (c.num_hidden_layers > kLayersMax)
    return base::InvalidArgument(c.num_hidden_layers, " layers are not read");
  if (const Json* text = FindFirst(json, {"hybrid_override_pattern"});
      text != nullptr && text->is_string()) {
    if (text->as_string().size() > kLayersMax)
      return base::InvalidArgument("field 'hybrid_override_pattern' has more than ", kLayersMax,
                                   " layers");
    for (const char letter : text->as_string()) kinds.emplace_back(std::string(1, letter));
    return kinds;
  }
  if (FindFirst(json, {"full_attn_idxs"}) != nullptr) {
    ASSIGN_OR_RETURN(const Json::Array full, hf::List(json, {"full_attn_idxs"}));
    kinds.assign(c.num_hidden_layers, Json(std::string("linear_attention")));
    for (const Json& item : full) {
      if (!item.is_int() || item.as_int() < 0 || item.as_int() >= c.num_hidden_layers)
        return base::InvalidArgument("field 'full_attn_idxs' has the layer ", item.Dump());
      kinds[item.as_int()] = Json(std::string("full_attention"));
    }
    return kinds;
  }
  ASSIGN_OR_RETURN(const int period, Int(json, {"full_attention_interval"}, 4));
  if (period < 1) return base::InvalidArgument("field 'full_attention_interval' is ", period);
  for (int layer = 0; layer < c.num_hidden_layers; ++layer)
    kinds.emplace_back(
        std::string((layer + 1) % period == 0 ? "full_attention" : "linear_attention"));
  return kinds;
}

Status ReadState(const Json& json, RecurrentConfig& r) {
  ASSIGN_OR_RETURN(
      r.taps, Int(json, {"linear_conv_kernel_dim", "mamba_d_conv", "conv_kernel", "conv_L_cache"}));
  if (r.kind == Mixer::kShortConv) return OkStatus();
  ASSIGN_OR_RETURN(r.key_heads, Int(json, {"linear_num_key_heads", "mamba_n_groups", "n_groups"}));
  ASSIGN_OR_RETURN(r.heads,
                   Int(json, {"linear_num_value_heads", "mamba_n_heads", "mamba_num_heads"}));
  ASSIGN_OR_RETURN(r.key_dim,
                   Int(json, {"linear_key_head_dim", "mamba_d_state", "ssm_state_size"}));
  ASSIGN_OR_RETURN(r.value_dim,
                   Int(json, {"linear_value_head_dim", "mamba_d_head", "mamba_head_dim"}));
  return OkStatus();
}

// Rejects configs that clamp Mamba's steps.
Status CheckSteps(const Json& json, const ModelConfig& c) {
  const Json* limit = FindFirst(json, {"time_step_limit"});
  if (limit == nullptr || !limit->is_array() || limit->as_array().size() != 2) return OkStatus();
  const Json& least = limit->as_array()[0];
  if (c.recurrent.kind == Mixer::kMamba2 && least.is_number() && least.as_double() > 0)
    return base::Unimplemented("time_step_limit ", limit->Dump(), " is not supported");
  return OkStatus();
}

// The floats of a small tensor, in order.
Result<std::vector<float>> Floats(const ModelFile& model, const TensorInfo& tensor) {
  std::vector<std::byte> bytes(tensor.bytes);
  RETURN_IF_ERROR(model.ReadRows(tensor, 0, tensor.rows, bytes));
  std::vector<float> out(tensor.rows * tensor.cols);
  for (std::int64_t r = 0; r < tensor.rows; ++r)
    kernels::DequantizeRow(*tensor.type->dtype, base::Octets(bytes.data()) + r * tensor.row_bytes(),
                           tensor.columns(), out.data() + r * tensor.cols);
  return out;
}

class Arranger {
 public:
  explicit Arranger(ModelFile& model) : model_(model), r_(model.config.recurrent) {}

  Status Layer(const std::string& prefix) {
    if (r_.kind == Mixer::kDeltaNet) {
      RETURN_IF_ERROR(Unpack(prefix));
      if (r_.tiled && r_.heads != r_.key_heads) Tile(prefix);
    }
    RETURN_IF_ERROR(Vectors(prefix));
    return Taps(prefix);
  }

 private:
  TensorInfo* Find(const std::string& name) {
    const auto found = std::find_if(model_.tensors.begin(), model_.tensors.end(),
                                    [&](const TensorInfo& t) { return t.name == name; });
    return found == model_.tensors.end() ? nullptr : &*found;
  }

  // Splits Qwen3-Next's rows of q, k, v and z by key head into all of q, of k, of v, and a separate
  // z.
  Status Unpack(const std::string& prefix) {
    const TensorInfo* packed = Find(prefix + "ssm_in.weight");
    if (packed == nullptr) return OkStatus();
    const TensorInfo stored = *packed;
    const std::int64_t dk = r_.key_dim, dv = r_.value_dim, group = r_.heads / r_.key_heads,
                       keys = r_.key_heads * dk, one = 2 * dk + 2 * group * dv;
    if (stored.rows != r_.key_heads * one)
      return base::InvalidArgument("tensor '", stored.name, "' has ", stored.rows,
                                   " rows, expected ", r_.key_heads * one);
    const auto of_value = [=](std::int64_t row) {
      return row / (group * dv) * one + 2 * dk + row % (group * dv);
    };
    *Find(stored.name) = ReorderedRows(model_, stored, prefix + "attn_qkv.weight",
                                       2 * keys + r_.inner(), [=](std::int64_t row) {
                                         if (row >= 2 * keys) return of_value(row - 2 * keys);
                                         const std::int64_t key = row % keys;
                                         return key / dk * one + (row >= keys ? dk : 0) + key % dk;
                                       });
    model_.tensors.push_back(
        ReorderedRows(model_, stored, prefix + "attn_gate.weight", r_.inner(),
                      [=](std::int64_t row) { return of_value(row) + group * dv; }));
    return OkStatus();
  }

  // Reorders value heads, which are grouped by key head, to GGUF's order: the first of each group,
  // then the second ones. Source: llama.cpp's converter.
  void Tile(const std::string& prefix) {
    const std::int64_t keys = r_.key_heads, group = r_.heads / keys;
    const auto by = [=](std::int64_t size, std::int64_t first) -> StoredIndex {
      return [=](std::int64_t row) {
        if (row < first) return row;
        const std::int64_t head = (row - first) / size, at = (row - first) % size;
        return first + (head % keys * group + head / keys) * size + at;
      };
    };
    const std::int64_t dv = r_.value_dim, qk = 2 * keys * r_.key_dim;
    const auto rows = [&](const char* name, std::int64_t size, std::int64_t first) {
      if (TensorInfo* t = Find(prefix + name); t != nullptr)
        *t = ReorderedRows(model_, *t, t->name, t->rows, by(size, first));
    };
    rows("attn_qkv.weight", dv, qk);
    rows("ssm_conv1d.weight", dv, qk);
    rows("attn_gate.weight", dv, 0);
    rows("ssm_alpha.weight", 1, 0);
    rows("ssm_beta.weight", 1, 0);
    for (const char* name : {"ssm_a", "ssm_dt.bias"})
      if (TensorInfo* t = Find(prefix + name); t != nullptr)
        *t = ReorderedColumns(model_, *t, t->name, t->cols, by(1, 0));
    if (TensorInfo* t = Find(prefix + "ssm_out.weight"); t != nullptr)
      *t = ReorderedColumns(model_, *t, t->name, t->cols, by(dv, 0));
  }

  // Computes -exp(A_log), and converts vectors that GGUF holds in f32.
  Status Vectors(const std::string& prefix) {
    for (const char* name : {"ssm_a", "ssm_d", "ssm_dt.bias", "ssm_conv1d.bias"}) {
      TensorInfo* tensor = Find(prefix + name);
      if (tensor == nullptr) continue;
      ASSIGN_OR_RETURN(std::vector<float> values, Floats(model_, *tensor));
      if (std::string_view(name) == "ssm_a")
        for (float& value : values) value = -std::exp(value);
      std::erase_if(model_.tensors, [&](const TensorInfo& t) { return t.name == prefix + name; });
      const std::string_view part = name;
      if (r_.kind == Mixer::kMamba2 && (part == "ssm_a" || part == "ssm_d")) {
        AddRows(prefix + name, 1, std::move(values));
      } else {
        model_.AddVector(prefix + name, std::move(values));
      }
    }
    // llama.cpp reads one row for each group.
    if (TensorInfo* norm = Find(prefix + "ssm_norm.weight");
        norm != nullptr && r_.kind == Mixer::kMamba2 && norm->cols % r_.key_heads == 0) {
      norm->num_dims = 2;
      norm->rows = r_.key_heads;
      norm->cols /= r_.key_heads;
    }
    return OkStatus();
  }

  // Removes the middle dimension of a convolution [channels, 1, taps].
  Status Taps(const std::string& prefix) {
    for (const char* name : {"ssm_conv1d.weight", "shortconv.conv.weight"}) {
      TensorInfo* tensor = Find(prefix + name);
      if (tensor == nullptr) continue;
      tensor->num_dims = 2;
      tensor->slabs = 1;
      ASSIGN_OR_RETURN(std::vector<float> values, Floats(model_, *tensor));
      const std::int64_t cols = tensor->cols;
      std::erase_if(model_.tensors, [&](const TensorInfo& t) { return t.name == prefix + name; });
      AddRows(prefix + name, cols, std::move(values));
    }
    return OkStatus();
  }

  void AddRows(const std::string& name, std::int64_t cols, std::vector<float> values) {
    const auto rows = static_cast<std::int64_t>(values.size()) / cols;
    model_.AddMatrix(name, rows, cols,
                     [values = std::move(values), cols](std::int64_t row, std::span<float> out) {
                       std::copy_n(values.begin() + row * cols, cols, out.begin());
                       return OkStatus();
                     });
  }

  ModelFile& model_;
  const RecurrentConfig& r_;
};

}  // namespace

Status ReadHuggingFaceRecurrent(const Json& json, ModelConfig& c) {
  const Architecture& a = *c.architecture;
  if (a.recurrent == Mixer::kAttention) return OkStatus();
  RecurrentConfig& r = c.recurrent;
  r.kind = a.recurrent;
  r.tiled = a.tiled_heads;
  if (c.num_hidden_layers > kLayersMax)
    return base::InvalidArgument("num_hidden_layers is ", c.num_hidden_layers,
                                 "; it must lie in [1, ", kLayersMax, "]");
  ASSIGN_OR_RETURN(const Json::Array kinds, LayerKinds(json, c));
  if (c.num_hidden_layers == 0) c.num_hidden_layers = base::IntSize(kinds);
  if (base::IntSize(kinds) != c.num_hidden_layers)
    return base::InvalidArgument("the kinds of ", kinds.size(), " layers are given, of ",
                                 c.num_hidden_layers);
  r.mixers.resize(kinds.size());
  if (a.one_part) r.networks.resize(kinds.size());
  if (a.one_part) c.experts.layers.resize(kinds.size());
  for (std::size_t l = 0; l < kinds.size(); ++l) RETURN_IF_ERROR(SetLayer(kinds[l], l, c));
  c.unrotated =
      r.kind == Mixer::kMamba2 && String(json, {"position_embedding_type"}, "nope") != "rope";
  if (r.layers() == 0) {  // attention everywhere: a model of the family without recurrent layers
    r = {};
    return OkStatus();
  }
  RETURN_IF_ERROR(CheckSteps(json, c));
  return ReadState(json, r);
}

Status ArrangeRecurrent(ModelFile& model) {
  if (!model.config.recurrent.any()) return OkStatus();
  Arranger arranger(model);
  for (int layer = 0; layer < model.config.num_hidden_layers; ++layer)
    if (model.config.recurrent.has_state(layer))
      RETURN_IF_ERROR(arranger.Layer(StrCat("blk.", layer, ".")));
  return OkStatus();
}

}  // namespace thermocline::model
