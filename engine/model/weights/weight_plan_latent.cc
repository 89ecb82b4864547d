// Tensors of latent attention.
#include "engine/model/weights/weight_plan.h"

namespace thermocline::model {

Status WeightPlan::Latent(const std::string& p, LayerWeights& layer) {
  const ModelConfig& c = model_.config;
  const LatentConfig& l = c.latent;
  LatentWeights& w = layer.latent;
  const int d = c.hidden_size, heads = c.num_attention_heads, rank = l.q_lora_rank;
  const int q = heads * (l.qk_nope_head_dim + l.qk_rope_head_dim);
  const bool held = parts_.attention;
  if (rank > 0) {
    RETURN_IF_ERROR(LinearOf(p + "attn_q_a", rank, d, held, w.q_a));
    RETURN_IF_ERROR(NormOf(p + "attn_q_a_norm", rank, w.q_a_norm));
    RETURN_IF_ERROR(LinearOf(p + "attn_q_b", q, rank, held, layer.q));
  } else {
    RETURN_IF_ERROR(LinearOf(p + "attn_q", q, d, held, layer.q));
  }
  RETURN_IF_ERROR(
      LinearOf(p + "attn_kv_a_mqa", l.kv_lora_rank + l.qk_rope_head_dim, d, held, w.kv_a));
  RETURN_IF_ERROR(NormOf(p + "attn_kv_a_norm", l.kv_lora_rank, w.kv_a_norm));
  RETURN_IF_ERROR(HeadsOf(p + "attn_k_b", l.kv_lora_rank, l.qk_nope_head_dim, w.k_b));
  RETURN_IF_ERROR(HeadsOf(p + "attn_v_b", l.v_head_dim, l.kv_lora_rank, w.v_b));
  return LinearOf(p + "attn_output", d, heads * l.v_head_dim, held, layer.attn_output);
}

Status WeightPlan::HeadsOf(const std::string& module, int rows, int cols, Linear& out) {
  const int heads = model_.config.num_attention_heads;
  ASSIGN_OR_RETURN(const TensorInfo* tensor, Find(module + ".weight", heads * rows, cols, heads));
  out.weight = {.type = TypeInMemory(*tensor), .rows = heads * rows, .cols = cols};
  if (parts_.attention) Reserve({.tensor = tensor, .matrix = &out.weight}, out.weight.bytes());
  return OkStatus();
}

}  // namespace thermocline::model
