// The constant part of a layer's keys, which a quantised KV cache does without.
//
// Some models add large biases to their keys (Qwen2.5-Coder 1.5B: up to 354 where keys are of order
// 1). Levels of eight bits that span the bias leave few for the rest. A vector that is the same for
// all keys of a chunk adds the same number to all its scores, which a softmax does not see. So keys
// are stored without their bias, rotated to the chunk's begin, and attention adds its product with
// the query to the chunk's maximum. Only dimensions that turn slowly are taken: in the others the
// rotated bias is not the same for all keys.
// Source: the smoothing of keys in SageAttention (Zhang et al. 2024), with a constant of the model
// in place of a mean of the prompt, so that a key's bits do not depend on other tokens.
#pragma once

#include <vector>

#include "engine/model/weights/weights.h"
#include "engine/nn/workspace.h"
#include "kernels/op_table.h"

namespace thermocline::exec {

// Borrows its parameters. Immutable after construction.
class KeyOrigins {
 public:
  // `context_length`: as the rotations' tables.
  KeyOrigins(const model::ModelConfig& config, const model::Weights& weights,
             const kernels::OpTable& ops, int context_length);
  // The bytes that a model's origins may take.
  static std::size_t Bytes(const model::ModelConfig& config);

  // True if the layer's keys have an origin.
  bool Has(int layer) const { return !biases_[layer].empty(); }
  // Writes the origin [Dh] of a kv head's keys in a chunk of kernels::kAttentionChunk positions.
  // `rope`: the layer's table, which covers the chunk's begin. Requires: Has(layer).
  void Write(int layer, int kv_head, int chunk, const nn::RopeTable& rope, float* out) const;

 private:
  const model::ModelConfig& config_;
  const kernels::OpTable& ops_;
  // [L][K Dh] of the dimensions that turn slowly, 0 in the others; empty: no origin.
  std::vector<std::vector<float>> biases_;
};

}  // namespace thermocline::exec
