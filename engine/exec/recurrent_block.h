// A recurrent layer: from its normed input to the output that is added to the residual.
//
//   columns = conv(W_in x);  gates = f(W_alpha x, W_beta x)            recurrent_inputs.h
//   y = the recurrence over columns and gates (kernels/recurrence.h);  out = W_out norm(y) gate(z)
// or, of a convolution alone, [b, c, x'] = W_in x and out = W_out (c * conv(b * x')).
//
// The state is updated one token at a time, so that a token's bits do not depend on the division
// into steps. A step whose tokens may be rejected computes on a copy of the state and keeps the
// inputs of the recurrence beside it; the sequence's next step repeats the recurrence for the
// accepted ones. So no state is copied for a drafted token, and no weight is read twice.
// Source: the ring of inputs in ReplaySSM (vLLM), with the plain recurrence.
#pragma once

#include <array>
#include <vector>

#include "engine/base/worker_pool.h"
#include "engine/exec/recurrent_inputs.h"
#include "engine/exec/step_tokens.h"
#include "engine/model/weights/weights.h"
#include "engine/nn/multiplier.h"
#include "engine/nn/workspace.h"
#include "kernels/op_table.h"

namespace thermocline::exec {

// Decode thread only. Borrows all its parameters; allocates nothing after construction.
class RecurrentBlock {
 public:
  struct Params {
    const model::ModelConfig& config;
    const model::Weights& weights;
    const kernels::OpTable& ops;
    base::WorkerPool& pool;
    nn::Multiplier& multiplier;
    nn::Workspace& workspace;
    const StepTokens& step;
  };
  explicit RecurrentBlock(const Params& params);
  // Bytes of the buffers. 0 if no layer is recurrent.
  static std::size_t Bytes(const model::ModelConfig& config, int tokens_max, int threads);

  // Computes attention_out of `hidden`, and advances the states of the step's sequences: to the
  // position after all of their tokens or, for parts that may be rolled back, to that before the
  // step.
  void Run(int layer);

 private:
  // Advances the layer's state of a part to its sequence's length.
  void Settle(int layer, const float* taps, const StepTokens::Part& part);
  // A token's input of the convolution.
  const float* Column(int token) const;
  void Project(int layer);
  // Inputs of the convolution at one token, the oldest first.
  using TapRows = std::array<const float*, kernels::kConvTapsMax>;
  // Returns the inputs at the `index`-th token after the history [taps - 1, C]. column_of(i)
  // returns the column [C] of the i-th token.
  template <typename ColumnOf>
  TapRows RowsOf(const float* history, int index, const ColumnOf& column_of) const;
  void ConvolveToken(int layer, const float* taps, int token);
  void Recur(int layer, const StepTokens::Part& part, int head, int thread);
  // The vectors of consecutive tokens; only Mamba reads `values`.
  struct Vectors {
    int tokens;
    const float* columns;  // [tokens, C]
    const float* values;   // [tokens, H V]
    const float* gates;    // [tokens, gate_stride]
    std::ptrdiff_t gate_stride;
  };
  // One head's recurrence; `out` [tokens, H V], or null.
  void RecurHead(float* state, int head, const Vectors& of, float* out);
  void EndPart(int layer, const StepTokens::Part& part);
  void KeepInputs(int layer, const StepTokens::Part& part);
  void Output(int layer);
  void GateToken(int layer, int token);
  // Shifts the history [taps - 1, C] by `count` columns.
  template <typename ColumnOf>
  void PushColumns(float* history, int count, const ColumnOf& column_of) const;

  const model::ModelConfig& config_;
  const model::RecurrentConfig& r_;
  const model::Weights& weights_;
  const kernels::OpTable& ops_;
  base::WorkerPool& pool_;
  nn::Multiplier& multiplier_;
  nn::Workspace& ws_;
  const StepTokens& step_;
  const RecurrentInputs inputs_;
  const int channels_, in_rows_;
  std::vector<float> in_;       // [T, in_rows]
  std::vector<float> z_;        // [T, H V] delta net
  std::vector<float> alpha_;    // [T, 2H] or [T, H]
  std::vector<float> beta_;     // [T, H]
  std::vector<float> columns_;  // [T, C] convolved
  std::vector<float> gates_;    // [T, 2H]
  std::vector<float> values_;   // [T, H V] Mamba-2
  nn::ActivationBuffer out_;    // [T, H V], or [T, D]
  std::vector<float> taps_;     // [taps, C]
  // Each thread's copy of a head's state [key_dim, value_dim], which is updated instead of the
  // sequence's own state if tokens of the step may be rolled back.
  std::vector<std::vector<float>> scratch_state_;
};

}  // namespace thermocline::exec
