// Mechanisms of the papers that can be left out, to measure what each is worth. Results stay the
// same, but for random_prediction.
#pragma once

namespace thermocline {

struct Ablation {
  // Skips predicted neurons once their activation turns out zero.
  // Source: SparseInfer, section 4.4 ("+AS").
  bool actual_sparsity = true;
  // A range of neurons is predicted, gated and multiplied in one pass of a thread; else each step
  // is a pass over all ranges. Source: SparseInfer, section 4.4 ("+KF").
  bool fusion = true;
  // A neuron's rows, and its neighbours', are one read from flash; else every row is one.
  // Source: LLM in a flash, section 3.2.
  bool bundling = true;
  // As many neurons as the predictor names, drawn at random by the input of a step's first token:
  // another text with drafts than without. Source: SparseInfer, section 5.3.
  bool random_prediction = false;

  bool predictor_changed() const { return !actual_sparsity || random_prediction; }
};

}  // namespace thermocline
