#include "engine/exec/attention_gates.h"

#include <algorithm>

#include "engine/base/index.h"
#include "engine/nn/gate_functions.h"
#include "engine/nn/offset.h"

namespace thermocline::exec {
namespace {

using model::OutputGate;

std::size_t Values(const model::ModelConfig& config, int tokens_max) {
  const OutputGate kind = config.architecture->output_gate;
  if (kind == OutputGate::kNone) return 0;
  const int parts = kind == OutputGate::kOfQuery ? 2 : 1;
  return base::Area(tokens_max, parts * config.LargestHeads().q());
}

}  // namespace

AttentionGates::AttentionGates(const model::ModelConfig& config, int tokens_max)
    : kind_(config.architecture->output_gate), values_(Values(config, tokens_max)) {}

std::size_t AttentionGates::Bytes(const model::ModelConfig& config, int tokens_max) {
  return Values(config, tokens_max) * sizeof(float);
}

void AttentionGates::Enter(const model::LayerWeights& layer, const model::HeadShape& heads) {
  layer_ = &layer;
  heads_ = heads;
}

nn::Product AttentionGates::Queries(float* q) {
  return {&layer_->q, of_query() ? values_.data() : q};
}

void AttentionGates::Split(int token, float* q) const {
  if (!of_query()) return;
  const int dim = heads_.dim, heads = heads_.heads;
  for (int h = 0; h < heads; ++h)
    std::copy_n(values_.data() + nn::Offset(token * heads + h, 2 * dim), dim,
                q + nn::Offset(token * heads + h, dim));
}

void AttentionGates::Apply(int token, float* attention) const {
  if (kind_ == OutputGate::kNone) return;
  const int dim = heads_.dim, heads = heads_.heads;
  const int row = of_query() ? 2 * heads_.q() : layer_->attn_gate.weight.rows;
  const int step = row / heads;  // from a head's gates to the next one's
  const float* gates = values_.data() + nn::Offset(token, row) + (of_query() ? dim : 0);
  const auto gate = kind_ == OutputGate::kSoftplus ? nn::Softplus<float> : nn::Sigmoid<float>;
  for (int h = 0; h < heads; ++h) {
    const float* of_head = gates + nn::Offset(h, step);
    float* head = attention + nn::Offset(h, dim);
    const float common = step == 1 ? gate(*of_head) : 0;
    for (int i = 0; i < dim; ++i) head[i] *= step == 1 ? common : gate(of_head[i]);
  }
}

}  // namespace thermocline::exec
