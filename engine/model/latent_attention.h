// Latent attention: a token has one short vector c, from which every head computes its K and V, and
// one rotated part of the key that all heads share.
//
//   q_h = [nope n | rope r] of head h,  c = norm(first of kv_a x),  k_pe = rope(rest of kv_a x)
//   plain:     k_h = [K_h c | k_pe],  v_h = V_h c,  scores q_h . k_h
//   absorbed:  q'_h = [q_pe | K_h^T q_nope],  k = [k_pe | c],  v = c,  out_h = V_h (sum p_s c_s)
// Both give the same numbers. We compute the absorbed form: one kv head of r + c dimensions, so the
// cache stores no K and V per head. Source: DeepSeek-V2 (2024), section 2.1.
#pragma once

#include "engine/model/model_file.h"

namespace thermocline::model {

// Sets the config's attention to the absorbed form: sizes of heads, rotation, scale. Requires:
// config.latent.any(), its rope is read.
void SetAbsorbed(ModelConfig& config);

// Cuts the context to `keys_max` tokens, with a warning: of longer ones an indexer, which is not
// computed, chooses so many keys for each query. 0: does nothing.
void CutToIndexed(int keys_max, ModelConfig& config);

// In place of tensors "attn_kv_b", of each head the rows of K_h [n, c] and then those of V_h
// [v, c]: "attn_k_b", of each head K_h^T [c, n], which is computed (f32 if the file's is
// quantised), and "attn_v_b", V_h. InvalidArgument: a tensor of another shape.
Status SplitLatent(ModelFile& model);

}  // namespace thermocline::model
