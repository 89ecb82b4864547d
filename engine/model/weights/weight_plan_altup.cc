// Tensors of AltUp, laurel and per-layer embeddings (model/altup.h).
#include "engine/model/weights/weight_plan.h"

namespace thermocline::model {

Status WeightPlan::SharedAltUp() {
  const ModelConfig& c = model_.config;
  SharedAltUpWeights& w = weights_.altup;
  const int d = c.hidden_size, others = c.altup.streams - 1;
  const bool held = options_.shared.embeddings;
  RETURN_IF_ERROR(StreamsOf("altup_proj", others, d, held, w.begin));
  return StreamsOf("altup_unembd_proj", others, d, held, w.end);
}

Status WeightPlan::SharedLayerInputs() {
  const ModelConfig& c = model_.config;
  SharedAltUpWeights& w = weights_.altup;
  const int d = c.hidden_size, own = c.altup.embedding_dim * c.num_hidden_layers;
  const bool held = options_.shared.embeddings;
  RETURN_IF_ERROR(LinearOf("per_layer_model_proj", own, d, held, w.layer_inputs));
  RETURN_IF_ERROR(NormOf("per_layer_proj_norm", c.altup.embedding_dim, w.layer_input_norm));
  const std::string table = "per_layer_token_embd.weight";
  const TensorInfo* tensor = model_.Find(table);
  const std::int64_t rows = tensor == nullptr ? 1 : tensor->rows;
  ASSIGN_OR_RETURN(tensor,
                   Find(table, static_cast<int>(std::min<std::int64_t>(rows, 1 << 22)), own));
  // A few tokens, for images and sounds, may have no row.
  if (rows < c.vocab_size - c.vocab_size / 64)
    return base::InvalidArgument(model_.path, ": tensor '", table, "' has ", rows, " rows for ",
                                 c.vocab_size, " tokens");
  layer_table_ = held ? tensor : nullptr;
  return OkStatus();
}

Status WeightPlan::StreamsOf(const std::string& module, int streams, int size, bool held,
                             Linear& out) {
  ASSIGN_OR_RETURN(const TensorInfo* tensor,
                   Find(module + ".weight", streams * size, size, streams));
  out.weight = {.type = TypeInMemory(*tensor), .rows = streams * size, .cols = size};
  if (held) Reserve({.tensor = tensor, .matrix = &out.weight}, out.weight.bytes());
  return OkStatus();
}

Status WeightPlan::AltUp(const std::string& p, AltUpWeights& w) {
  const ModelConfig& c = model_.config;
  const int d = c.hidden_size, n = c.altup.streams, rank = c.altup.laurel_rank;
  const bool held = parts_.attention;
  RETURN_IF_ERROR(LinearOf(p + "altup_router", n, d, held, w.router));
  RETURN_IF_ERROR(NormOf(p + "altup_router_norm", d, w.router_norm));
  RETURN_IF_ERROR(LinearOf(p + "altup_predict_coef", n * n, n, held, w.predict));
  RETURN_IF_ERROR(LinearOf(p + "altup_correct_coef", n, n, held, w.correct));
  RETURN_IF_ERROR(Vector(p + "altup_correct_scale.weight", d, w.correct_scale));
  RETURN_IF_ERROR(LinearOf(p + "laurel_l", rank, d, held, w.laurel_left));
  RETURN_IF_ERROR(LinearOf(p + "laurel_r", d, rank, held, w.laurel_right));
  return NormOf(p + "laurel_post_norm", d, w.laurel_norm);
}

Status WeightPlan::LayerInput(const std::string& p, AltUpWeights& w) {
  const int d = model_.config.hidden_size, own = model_.config.altup.embedding_dim;
  const bool held = parts_.attention;
  RETURN_IF_ERROR(LinearOf(p + "inp_gate", own, d, held, w.input_gate));
  RETURN_IF_ERROR(LinearOf(p + "proj", d, own, held, w.input_proj));
  return NormOf(p + "post_norm", d, w.input_norm);
}

// Tensors that files hold and nobody reads: K and V of layers that reuse other layers', and an
// indexer, since the context is no longer than its choice.
bool WeightPlan::IsUnread(const std::string& name) const {
  const ModelConfig& c = model_.config;
  if (c.architecture->indexed && name.find(".indexer.") != std::string::npos) return true;
  for (int layer = c.NumKvLayers(); layer < c.num_hidden_layers; ++layer) {
    for (const char* of : {"attn_k.weight", "attn_v.weight", "attn_k_norm.weight"})
      if (name == StrCat("blk.", layer, ".", of)) return true;
  }
  return false;
}

}  // namespace thermocline::model
