// Every buffer of a forward pass, in one place, sized once.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/model_config.h"
#include "kernels/types.h"

namespace thermocline::exec {

// Floats of T tokens and their Q8 form: what a matrix multiplication reads.
struct ActivationBuffer {
  std::vector<float> x;           // [T, cols]
  std::vector<std::int8_t> q;     // [T, cols]
  std::vector<float> scale;       // [T, cols / 32]
  std::vector<std::int32_t> sum;  // [T, cols / 32]
  int cols = 0;

  void Resize(int tokens, int columns);
  kernels::Activations view() const { return {x.data(), q.data(), scale.data(), sum.data(), cols}; }
};

struct Workspace {
  struct Params {
    const model::ModelConfig& config;
    int tokens_max;      // T of one call
    int logits_max;      // tokens of one call whose logits are wanted
    int context_length;  // tokens
    int threads;
  };
  explicit Workspace(const Params& params);

  int tokens_max;  // T
  int logits_max;
  std::vector<float> residual;   // [T, D]
  ActivationBuffer hidden;       // [T, D], normed input of attention, feed-forward and head
  std::vector<float> q;          // [T, H*Dh]
  std::vector<float> k;          // [T, K*Dh]
  std::vector<float> v;          // [T, K*Dh]
  ActivationBuffer attention;    // [T, H*Dh]
  ActivationBuffer ffn;          // [T, F], gate and then act(gate) * up
  std::vector<float> up;         // [T, F]
  std::vector<float> block_out;  // [T, D]
  ActivationBuffer head;         // [2, D], the head's input and what its Q8 form leaves over
  std::vector<float> head_out;   // [2, V]
  std::vector<float> logits;     // [logits_max, V]
  std::vector<std::vector<float>> scores;  // per thread: [context rounded up to 16]
  std::vector<float> rope_cos;             // [context, rope_dim / 2]
  std::vector<float> rope_sin;
};

}  // namespace thermocline::exec
