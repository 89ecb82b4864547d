// Products of the rows of a range's neurons, stored in panels or as separate rows.
#pragma once

#include "engine/ffn/ffn_context.h"

namespace thermocline::ffn {

// Products of neurons' rows with the step's tokens, the bias added.
struct RowProduct {
  const model::NeuronMatrix& matrix;
  const nn::ActivationBuffer& hidden;  // [T, D]
  int tokens;
  NeuronRange range;
  const int* ids;  // [count] of the range; null: its consecutive neurons. Requires: kRows
  int count;
  float* out;  // [T, count], rows out_stride apart
  int out_stride;
};
void Multiply(const FfnContext& context, const RowProduct& product, int thread);

}  // namespace thermocline::ffn
