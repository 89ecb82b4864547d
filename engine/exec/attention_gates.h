// Gates on the output of attention's heads: y *= g(gate), before its projection.
//
// A gate is a number for each element, or one for each head. It comes from a matrix of its own or,
// as Qwen's, lies behind its head's query in the product of that one.
#pragma once

#include <vector>

#include "engine/model/weights/weights.h"
#include "engine/nn/multiplier.h"

namespace thermocline::exec {

// Decode thread only; allocates nothing after construction.
class AttentionGates {
 public:
  AttentionGates(const model::ModelConfig& config, int tokens_max);
  static std::size_t Bytes(const model::ModelConfig& config, int tokens_max);

  // Sets the layer whose products and outputs follow.
  void Enter(const model::LayerWeights& layer, const model::HeadShape& heads);
  // The product that gives queries [T, H Dh] in `q`, or in a buffer of its own, from which Split
  // copies them to `q`.
  nn::Product Queries(float* q);
  void Split(int token, float* q) const;
  // The product of gates; its matrix has no rows if the family has none.
  nn::Product Gates() { return {&layer_->attn_gate, values_.data()}; }
  bool has_matrix() const { return layer_->attn_gate.weight.rows > 0; }
  // attention [H Dh] *= g(gate of the token).
  void Apply(int token, float* attention) const;

 private:
  bool of_query() const { return kind_ == model::OutputGate::kOfQuery; }

  const model::OutputGate kind_;
  std::vector<float> values_;  // [T, H, 2 Dh] queries and gates, [T, H Dh] gates or [T, H] gates
  const model::LayerWeights* layer_ = nullptr;
  model::HeadShape heads_;
};

}  // namespace thermocline::exec
