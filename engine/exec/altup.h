// The streams of AltUp, laurel and per-layer embeddings (model/altup.h) around a transformer's
// layers:
//
//   Begin;  for each layer: Predict, then attention of its norm, AddLaurel, the network, Correct;
//   End
#pragma once

#include <span>
#include <vector>

#include "engine/base/index.h"
#include "engine/exec/layer_inputs.h"
#include "engine/model/weights/weights.h"
#include "engine/nn/multiplier.h"
#include "engine/nn/workspace.h"
#include "kernels/op_table.h"

namespace thermocline::exec {

// Decode thread only. Borrows all its parameters; allocates nothing after construction.
class AltUp {
 public:
  struct Params {
    const model::ModelConfig& config;
    const model::Weights& weights;
    const kernels::OpTable& ops;
    base::WorkerPool& pool;
    nn::Multiplier& multiplier;
    LayerInputs& inputs;
    int tokens_max;  // T of one call
  };
  // Requires: config.altup.any().
  explicit AltUp(const Params& params);
  // Bytes that a construction with these sizes allocates; 0 if the family has no streams.
  static std::size_t Bytes(const model::ModelConfig& config, int tokens_max);

  // Initializes the streams of a step's tokens from their embeddings [T, D], and the layers' own
  // embeddings. Errors as model::FileRows::Read.
  Status Begin(std::span<const int> tokens, const float* embeddings);
  // residual [T, D] = the layer's prediction of the first stream.
  void Predict(int layer, int tokens, float* residual);
  // residual = (residual + hidden + norm(laurel hidden)) / sqrt 2; `hidden` is attention's input.
  void AddLaurel(int layer, int tokens, const nn::ActivationBuffer& hidden, float* residual);
  // Corrects the streams by the layer's output for the first one, and adds the layer's embedding.
  void Correct(int layer, int tokens, const float* residual);
  // residual = the streams combined.
  void End(int tokens, float* residual);

 private:
  float* stream(int token, int index) {
    return streams_.data() + (base::Area(token, count_) + index) * size_;
  }
  float* prediction(int token, int index) {
    return predictions_.data() + (base::Area(token, count_) + index) * size_;
  }
  // Computes m(x) (model/altup.h), from which the coefficients of the tokens' streams are made, of
  // `x` [T, D] with rows `stride` apart.
  void Route(const model::AltUpWeights& w, int tokens, const float* x, std::ptrdiff_t stride);
  void AddEmbedding(int layer, int tokens);
  void Multiply(const model::Linear& linear, const nn::ActivationBuffer& input, int tokens,
                float* out);
  template <typename Body>
  void ForTokens(int tokens, const Body& body);

  const model::ModelConfig& config_;
  const model::Weights& weights_;
  const kernels::OpTable& ops_;
  base::WorkerPool& pool_;
  nn::Multiplier& multiplier_;
  LayerInputs& inputs_;
  const int size_, count_;           // D, N
  std::vector<float> streams_;       // [T, N, D]
  std::vector<float> predictions_;   // [T, N, D]
  std::vector<float> others_;        // [T, N - 1, D]
  std::vector<float> coefficients_;  // [T, N N]
  std::vector<float> wide_;          // [T, D]
  nn::ActivationBuffer input_;       // [T, D]
  nn::ActivationBuffer routed_;      // [T, N]
  nn::ActivationBuffer low_;         // [T, R]
};

}  // namespace thermocline::exec
