// Mechanisms of the papers that can be switched off, to measure their effect. Results do not
// change, except with random_prediction.
#pragma once

namespace thermocline {

struct Ablation {
  // Skips predicted neurons once their activation turns out zero.
  // Source: SparseInfer, section 4.4 ("+AS").
  bool actual_sparsity = true;
  // A range of neurons is predicted, gated and multiplied in one pass of a thread; otherwise each
  // step is a pass over all ranges.
  // Source: SparseInfer, section 4.4 ("+KF").
  bool fusion = true;
  // A neuron's rows, and its neighbours', are one read from flash; otherwise every row is a read.
  // Source: LLM in a flash, section 3.2.
  bool bundling = true;
  // Computes as many neurons as the predictor predicts, but random ones, drawn from the input of a
  // step's first token; so the text with drafts differs from the text without.
  // Source: SparseInfer, section 5.3.
  bool random_prediction = false;

  bool predictor_changed() const { return !actual_sparsity || random_prediction; }
};

}  // namespace thermocline
