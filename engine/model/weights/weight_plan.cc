#include "engine/model/weights/weight_plan.h"

#include <algorithm>

#include "engine/base/index.h"
#include "engine/base/strings.h"
#include "engine/model/weights/input_major.h"
#include "kernels/quantize.h"

namespace thermocline::model {
namespace {

using kernels::DType;

constexpr std::size_t kCacheLine = 64;

}  // namespace

Status WeightPlan::Make() {
  const ModelConfig& c = model_.config;
  const std::size_t layers = c.num_hidden_layers;
  weights_.layers.resize(layers);
  weights_.images.resize(layers);
  RETURN_IF_ERROR(Shared());
  Place(-1, 0, end_);
  for (int i = 0; i < c.num_hidden_layers; ++i) {
    const std::size_t first = slots_.size();
    end_ = 0;
    RETURN_IF_ERROR(Layer(i));
    Place(i, first, end_);
  }
  PlaceStages();
  return RefuseStrangers();
}

Status WeightPlan::Shared() {
  const ModelConfig& c = model_.config;
  const int d = c.hidden_size;
  const bool held = options_.shared.embeddings;
  RETURN_IF_ERROR(Matrix("token_embd.weight", c.vocab_size, d, held, weights_.token_embedding));
  if (c.learned_positions()) {
    const int rows = c.max_position_embeddings + c.architecture->position_offset;
    RETURN_IF_ERROR(Matrix("position_embd.weight", rows, d, held, weights_.position_embedding));
  }
  if (c.architecture->encoder_norms) RETURN_IF_ERROR(SharedEncoder());
  if (c.architecture->norm_place == NormPlace::kOfSum) return OkStatus();
  RETURN_IF_ERROR(NormOf(std::string(c.architecture->output_norm), d, weights_.output_norm));
  if (c.architecture->encoder) return DenseModules();
  if (c.altup.any()) RETURN_IF_ERROR(SharedAltUp());
  if (c.altup.embedding_dim > 0) RETURN_IF_ERROR(SharedLayerInputs());
  RETURN_IF_ERROR(OptionalVector("output.bias", c.vocab_size, weights_.output.bias));
  if (c.tie_word_embeddings) return OkStatus();
  return Matrix("output.weight", c.vocab_size, d, options_.shared.head, weights_.output.weight);
}

// The modules' names are llama.cpp's, by their place among those of sentence-transformers.
Status WeightPlan::DenseModules() {
  static constexpr std::array kNames = {"dense_2", "dense_3"};
  int inputs = model_.config.hidden_size;
  for (std::size_t i = 0; i < kDenseModules; ++i) {
    const TensorInfo* found = model_.Find(StrCat(kNames[i], ".weight"));
    if (found == nullptr) continue;
    const auto rows = static_cast<int>(std::clamp<std::int64_t>(found->rows, 1, 1 << 16));
    RETURN_IF_ERROR(LinearOf(kNames[i], rows, inputs, true, weights_.dense[i]));
    inputs = rows;
  }
  return OkStatus();
}

Status WeightPlan::SharedEncoder() {
  const int d = model_.config.hidden_size;
  RETURN_IF_ERROR(NormOf("token_embd_norm", d, weights_.embedding_norm));
  if (model_.config.ranks()) {
    RETURN_IF_ERROR(LinearOf("cls", d, d, true, weights_.rank.dense));
    if (model_.Find("cls.norm.weight") != nullptr)
      RETURN_IF_ERROR(NormOf("cls.norm", d, weights_.rank.norm));
    RETURN_IF_ERROR(LinearOf("cls.output", 1, d, true, weights_.rank.output));
  }
  const TensorInfo* types = model_.Find("token_types.weight");
  if (types == nullptr) return OkStatus();
  const auto rows = static_cast<int>(std::clamp<std::int64_t>(types->rows, 1, 1 << 10));
  return Matrix("token_types.weight", rows, d, options_.shared.embeddings, weights_.type_embedding);
}

Status WeightPlan::Layer(int layer) {
  parts_ = options_.parts ? options_.parts(layer) : LayerParts{};
  LayerWeights& weights = weights_.layers[layer];
  const std::string prefix = StrCat("blk.", layer, ".");
  RETURN_IF_ERROR(Attention(layer, prefix, weights));
  if (model_.config.altup.any()) RETURN_IF_ERROR(AltUp(prefix, weights.altup));
  if (model_.config.altup.embedding_dim > 0) RETURN_IF_ERROR(LayerInput(prefix, weights.altup));
  if (model_.config.architecture->layer_scale)
    RETURN_IF_ERROR(OptionalVector(prefix + "layer_output_scale.weight", 1, weights.out_scale));
  return FeedForward(layer, prefix, weights);
}

Status WeightPlan::Attention(int index, const std::string& p, LayerWeights& layer) {
  const ModelConfig& c = model_.config;
  const HeadShape shape = c.HeadsOf(index);
  const int d = c.hidden_size, q = shape.q(), kv = shape.kv();
  const bool held = parts_.attention;
  if (c.recurrent.of(index) == Mixer::kNone) return OkStatus();  // its norm is the network's
  const NormPlace place = c.architecture->norm_place;
  const bool before = place == NormPlace::kBefore || place == NormPlace::kBoth;
  const char* after = place == NormPlace::kOfSum ? "attn_output_norm" : "post_attention_norm";
  const bool embedding_normed = c.architecture->encoder_norms && index == 0;
  if (before && !(embedding_normed && model_.Find(p + "attn_norm.weight") == nullptr))
    RETURN_IF_ERROR(NormOf(p + "attn_norm", d, layer.attn_norm));
  if (place != NormPlace::kBefore) RETURN_IF_ERROR(NormOf(p + after, d, layer.attn_post_norm));
  layer.attn_post_norm.eps = layer.ffn_post_norm.eps =
      static_cast<float>(c.architecture->post_norm_eps);
  if (c.architecture->second_norm && model_.Find(p + "attn_norm_2.weight") != nullptr)
    RETURN_IF_ERROR(NormOf(p + "attn_norm_2", d, layer.attn_second_norm));
  if (c.architecture->sub_norms)
    RETURN_IF_ERROR(NormOf(p + "attn_sub_norm", q, layer.attn_sub_norm));
  if (c.recurrent.has_state(index)) return Recurrent(p, layer.recurrent);
  if (c.latent.any()) return Latent(p, layer);
  const OutputGate gate = c.architecture->output_gate;
  const int parts = gate == OutputGate::kOfQuery ? 2 : 1;
  RETURN_IF_ERROR(LinearOf(p + "attn_q", parts * q, d, held, layer.q));
  if (gate == OutputGate::kSigmoid || gate == OutputGate::kSoftplus) {
    const TensorInfo* gates = model_.Find(p + "attn_gate.weight");
    const bool by_head =
        gate == OutputGate::kSoftplus && gates != nullptr && gates->rows == shape.heads;
    RETURN_IF_ERROR(LinearOf(p + "attn_gate", by_head ? shape.heads : q, d, held, layer.attn_gate));
  }
  const bool owns = c.OwnsKv(index);
  if (owns) {
    RETURN_IF_ERROR(LinearOf(p + "attn_k", kv, d, held, layer.k));
    if (!c.KeysAreValues(index)) RETURN_IF_ERROR(LinearOf(p + "attn_v", kv, d, held, layer.v));
  }
  const bool normed = c.architecture->head_norm || c.architecture->wide_norm;
  const bool may_lack =
      c.architecture->optional_norms && model_.Find(p + "attn_q_norm.weight") == nullptr;
  if (normed && !may_lack) {
    const bool wide = c.architecture->wide_norm;
    RETURN_IF_ERROR(NormOf(p + "attn_q_norm", wide ? q : shape.dim, layer.q_norm));
    if (owns) RETURN_IF_ERROR(NormOf(p + "attn_k_norm", wide ? kv : shape.dim, layer.k_norm));
  }
  RETURN_IF_ERROR(LinearOf(p + "attn_output", d, q, held, layer.attn_output));
  if (c.architecture->sinks)
    RETURN_IF_ERROR(Vector(p + "attn_sinks.weight", c.num_attention_heads, layer.sinks));
  return CheckBiases(p);
}

Status WeightPlan::CheckBiases(const std::string& p) const {
  const QkvBias bias = model_.config.architecture->qkv_bias;
  const bool alone = bias == QkvBias::kAlone;
  const bool q = model_.Find(p + "attn_q.bias") != nullptr;
  if (alone) RETURN_IF_ERROR(Require(p, {"attn_q.bias", "attn_k.bias", "attn_v.bias"}));
  if (model_.config.architecture->biased)
    RETURN_IF_ERROR(Require(p, {"attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_output.bias"}));
  if (bias == QkvBias::kWithOutput && q && model_.Find(p + "attn_output.bias") == nullptr) {
    return base::InvalidArgument(model_.path, ": tensor '", p, "attn_q.bias' without '", p,
                                 "attn_output.bias' has no place in the architecture '",
                                 model_.config.architecture->name, "'");
  }
  return OkStatus();
}

Status WeightPlan::Require(const std::string& p, std::initializer_list<const char*> tensors) const {
  for (const char* name : tensors) {
    if (model_.Find(p + name) == nullptr)
      return base::InvalidArgument(model_.path, ": tensor '", p, name, "' is missing");
  }
  return OkStatus();
}

Status WeightPlan::FeedForward(int index, const std::string& p, LayerWeights& layer) {
  const ModelConfig& c = model_.config;
  const int d = c.hidden_size, f = c.NetworkSizeOf(index);
  const bool gated = c.architecture->gated;
  if (!c.recurrent.has_network(index)) return OkStatus();
  const NormPlace place = c.architecture->norm_place;
  const bool before = place == NormPlace::kBefore || place == NormPlace::kBoth;
  if (!c.architecture->parallel_block && before)
    RETURN_IF_ERROR(NormOf(p + std::string(c.architecture->ffn_norm), d, layer.ffn_norm));
  const char* after = place == NormPlace::kOfSum ? "layer_output_norm" : "post_ffw_norm";
  if (place != NormPlace::kBefore) RETURN_IF_ERROR(NormOf(p + after, d, layer.ffn_post_norm));
  if (c.architecture->sub_norms) RETURN_IF_ERROR(NormOf(p + "ffn_sub_norm", f, layer.ffn_sub_norm));
  if (c.experts.InLayer(index)) {
    RETURN_IF_ERROR(Experts(p, layer.experts));
    if (!c.architecture->beside_experts) return OkStatus();
    RETURN_IF_ERROR(NormOf(p + "post_ffw_norm_1", d, layer.dense_post_norm));
    RETURN_IF_ERROR(NormOf(p + "pre_ffw_norm_2", d, layer.expert_norm));
    RETURN_IF_ERROR(NormOf(p + "post_ffw_norm_2", d, layer.expert_post_norm));
  }
  // In a mixture, the dense layers count with the parts that every token reads.
  const bool deciding = c.experts.any() ? parts_.attention : parts_.deciding,
             rest = c.experts.any() ? parts_.attention : parts_.rest;
  if (gated) RETURN_IF_ERROR(NeuronsOf(p + "ffn_gate", f, deciding, options_.gate, layer.gate));
  RETURN_IF_ERROR(NeuronsOf(p + "ffn_up", f, gated ? rest : deciding, options_.up, layer.up));
  RETURN_IF_ERROR(LowRankOf(p, layer.low_rank));
  if (model_.Find(p + "ffn_down_t.weight") == nullptr)
    return LinearOf(p + "ffn_down", d, f, rest, layer.down);
  RETURN_IF_ERROR(DownRows(p + "ffn_down_t.weight", f, layer.down_rows));
  return OptionalVector(p + "ffn_down.bias", d, layer.down.bias);
}

Status WeightPlan::NeuronsOf(const std::string& module, int neurons, bool held, Layout layout,
                             NeuronMatrix& out) {
  RETURN_IF_ERROR(
      Matrix(module + ".weight", neurons, model_.config.hidden_size, held, out.linear.weight));
  out.layout = layout;
  if (held) slots_.back().layout = layout;
  return OptionalVector(module + ".bias", neurons, out.linear.bias);
}

Status WeightPlan::DownRows(const std::string& name, int rows, kernels::RowMatrix& out) {
  const int cols = model_.config.hidden_size;
  ASSIGN_OR_RETURN(const TensorInfo* tensor, Find(name, rows, cols));
  const DType type = kernels::SummableType(TypeInMemory(*tensor), cols);
  out = {.type = type, .rows = rows, .cols = cols};
  if (parts_.rest) Reserve({.tensor = tensor, .rows = &out, .layout = Layout::kRows}, out.bytes());
  return OkStatus();
}

Status WeightPlan::LowRankOf(const std::string& p, LowRankWeights& out) {
  const ModelConfig& c = model_.config;
  const TensorInfo* fc1 = model_.Find(p + "fc1.weight");
  if (fc1 == nullptr && model_.Find("blk.0.fc1.weight") == nullptr) return OkStatus();
  const int rank = fc1 == nullptr ? 0 : static_cast<int>(fc1->rows);
  const bool held = parts_.predictor;
  RETURN_IF_ERROR(Matrix(p + "fc1.weight", rank, c.hidden_size, held, out.fc1.weight));
  RETURN_IF_ERROR(Matrix(p + "fc2.weight", c.intermediate_size, rank, held, out.fc2.weight));
  out.threshold = c.sparse_threshold.value_or(0.0F);
  return OkStatus();
}

Status WeightPlan::LinearOf(const std::string& module, int rows, int cols, bool held, Linear& out) {
  RETURN_IF_ERROR(Matrix(module + ".weight", rows, cols, held, out.weight));
  return OptionalVector(module + ".bias", rows, out.bias);
}

Status WeightPlan::NormOf(const std::string& module, int n, NormWeights& out) {
  RETURN_IF_ERROR(Vector(module + ".weight", n, out.weight));
  if (model_.config.architecture->norm == Norm::kRms) return OkStatus();
  return OptionalVector(module + ".bias", n, out.bias);
}

Result<const TensorInfo*> WeightPlan::Find(const std::string& name, int rows, int cols, int slabs) {
  const TensorInfo* tensor = model_.Find(name);
  if (tensor == nullptr)
    return base::InvalidArgument(model_.path, ": tensor '", name, "' is missing");
  if (tensor->rows != rows || tensor->cols != cols) {
    return base::InvalidArgument(model_.path, ": tensor '", name, "' has the shape [", tensor->rows,
                                 ", ", tensor->cols, "], expected [", rows, ", ", cols, "]");
  }
  if (tensor->num_dims > 3 || tensor->slabs != slabs)
    return base::InvalidArgument(model_.path, ": tensor '", name, "' has ", tensor->num_dims,
                                 " dimensions with ", tensor->slabs, " matrices, expected ", slabs);
  if (!tensor->type->dtype.has_value()) {
    std::string supported;
    for (const kernels::DTypeTraits& type : kernels::kDTypeTraits)
      supported += StrCat(supported.empty() ? "" : ", ", type.name);
    return base::Unimplemented(model_.path, ": tensor '", name, "' has type ", tensor->type->name,
                               "; supported are ", supported);
  }
  used_.insert(name);
  return tensor;
}

Status WeightPlan::Matrix(const std::string& name, int rows, int cols, bool held,
                          kernels::PackedMatrix& out) {
  ASSIGN_OR_RETURN(const TensorInfo* tensor, Find(name, rows, cols));
  out = {.type = TypeInMemory(*tensor), .rows = rows, .cols = cols};
  if (held) Reserve({.tensor = tensor, .matrix = &out}, out.bytes());
  return OkStatus();
}

DType WeightPlan::TypeInMemory(const TensorInfo& tensor) const {
  const DType stored = *tensor.type->dtype;
  // A router's logits decide, and its input may be floats only (RouterInput).
  if (tensor.name.ends_with(".ffn_gate_inp.weight")) return DType::kF32;
  const bool head = tensor.name == "output.weight" ||
                    (tensor.name == "token_embd.weight" && model_.config.tie_word_embeddings);
  const bool fits = tensor.cols % kernels::Traits(DType::kQ8_0).block_size == 0;
  if (options_.quantize_head && head && fits && !kernels::Traits(stored).quantized)
    return DType::kQ8_0;
  return model_.for_device ? kernels::DeviceType(stored) : stored;
}

Status WeightPlan::Vector(const std::string& name, int n, const float*& out) {
  ASSIGN_OR_RETURN(const TensorInfo* tensor, Find(name, 1, n));
  if (parts_.vectors) Reserve({.tensor = tensor, .vector = &out}, n * sizeof(float));
  return OkStatus();
}

Status WeightPlan::OptionalVector(const std::string& name, int n, const float*& out) {
  return model_.Find(name) == nullptr ? OkStatus() : Vector(name, n, out);
}

void WeightPlan::Reserve(WeightSlot slot, std::size_t bytes) {
  slot.offset = end_;
  end_ += base::RoundUp(bytes, kCacheLine);
  slots_.push_back(slot);
}

void WeightPlan::Place(int layer, std::size_t first, std::size_t bytes) {
  const int stage = layer >= 0 && options_.stage ? options_.stage(layer) : -1;
  std::size_t begin = bytes_;
  bytes = base::RoundUp(bytes, kImageAlignment);
  if (stage < 0) {
    bytes_ += bytes;
  } else {
    const std::size_t at = stage;
    if (stage_bytes_.size() <= at) stage_bytes_.resize(at + 1);
    stage_bytes_[at] = std::max(stage_bytes_[at], bytes);
    begin = 0;
  }
  for (std::size_t i = first; i < slots_.size(); ++i) {
    slots_[i].stage = stage;
    slots_[i].offset += begin;
  }
  if (layer >= 0) weights_.images[layer] = {begin, bytes, stage};
}

void WeightPlan::PlaceStages() {
  std::vector<std::size_t> begin;
  for (const std::size_t bytes : stage_bytes_) {
    begin.push_back(bytes_);
    bytes_ += bytes;
  }
  for (WeightSlot& slot : slots_) {
    if (slot.stage >= 0) slot.offset += begin[slot.stage];
  }
  for (Weights::Image& image : weights_.images) {
    if (image.stage >= 0) image.begin = begin[image.stage];
  }
}

// True for an input-major copy that mode inputs will read (input_major.h).
bool WeightPlan::IsInputMajorCopy(std::string_view name) const {
  if (!name.ends_with(kInputMajorSuffix)) return false;
  name.remove_suffix(kInputMajorSuffix.size());
  const std::string own = StrCat(name, ".weight");
  return InputMajorName(own) != "" && used_.contains(own);
}

Status WeightPlan::RefuseStrangers() const {
  for (const TensorInfo& tensor : model_.tensors) {
    if (used_.contains(tensor.name) || tensor.name == "rope_freqs.weight") continue;
    if (IsUnread(tensor.name)) continue;
    if (tensor.name.starts_with("rope_factors_")) continue;
    if (IsInputMajorCopy(tensor.name)) continue;
    if (tensor.name == "output.weight" && model_.config.tie_word_embeddings) continue;
    return base::InvalidArgument(
        model_.path, ": tensor '", tensor.name, "' has no place in the architecture '",
        model_.config.architecture->name, "' with ", model_.config.num_hidden_layers, " layers");
  }
  return OkStatus();
}

}  // namespace thermocline::model
