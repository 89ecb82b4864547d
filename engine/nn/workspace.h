// All buffers of a forward pass, allocated once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/model/model_config.h"
#include "kernels/attention.h"
#include "kernels/types.h"

namespace thermocline::nn {

// Floats of T tokens and their Q8 form: the input of a matrix multiplication.
struct ActivationBuffer {
  std::vector<float> x;                // [T, cols]
  std::vector<std::int8_t> q;          // [T, cols]
  std::vector<float> scale;            // [T, cols / 32]
  std::vector<float> scaled_sum;       // [T, cols / 32]
  std::vector<std::int32_t> sum;       // [T, cols / 32]
  std::vector<std::int32_t> half_sum;  // [T, cols / 32]
  std::vector<std::int32_t> pair_sum;  // [T, cols / 32, 2]
  int cols = 0;

  void Resize(int tokens, int columns);
  static std::size_t Bytes(int tokens, int columns);
  // Elements from `at` on, as rows of `columns`. Requires: `at` a multiple of 32, or floats only.
  kernels::Activations view(std::ptrdiff_t at, int columns) const;
  kernels::Activations view() const { return view(0, cols); }
};

// The attention states of `parts` runs of positions, each for all heads.
struct AttentionParts {
  std::vector<float> max;    // [parts, H]
  std::vector<float> total;  // [parts, H]
  std::vector<float> out;    // [parts, H, Dh]
  int heads = 0, head_dim = 0;

  void Resize(int parts, int num_heads, int dim);
  static std::size_t Bytes(int parts, int num_heads, int dim);
  kernels::AttentionState state(int part, int head);
};

// Cosines and sines of rotations by position, computed when a position is first reached, so that a
// long context takes neither time nor memory before.
class RopeTable {
 public:
  void Reserve(const model::RopeConfig& rope, int context_length);
  static std::size_t Bytes(const model::RopeConfig& rope, int context_length);
  // Computes positions [0, positions). Requires: at most context_length. Not thread-safe.
  void Cover(int positions);
  // [rope.dim / 2] of a position that Cover has computed.
  const float* cos(int position) const { return cos_.get() + Offset(position); }
  const float* sin(int position) const { return sin_.get() + Offset(position); }

 private:
  std::ptrdiff_t Offset(int position) const {
    return position * static_cast<std::ptrdiff_t>(rope_.frequencies.size());
  }

  model::RopeFrequencies rope_;
  std::unique_ptr<float[]> cos_, sin_;  // [context_length, rope.dim / 2]
  int covered_ = 0;
};

// Both [context_length, rope.dim / 2].
void FillRope(const model::RopeConfig& rope, int context_length, std::vector<float>& cos,
              std::vector<float>& sin);

struct Workspace {
  struct Params {
    const model::ModelConfig& config;
    int tokens_max;      // T of one call
    int logits_max;      // tokens of one call that have logits
    int context_length;  // tokens
    int threads;
  };
  explicit Workspace(const Params& params);
  // The bytes of all buffers that a workspace of these sizes allocates.
  static std::size_t Bytes(const Params& params);

  int tokens_max = 0;  // T
  int context_length = 0;
  int logits_max = 0;
  std::vector<float> residual;       // [T, D]
  ActivationBuffer hidden;           // [T, D], normed input of attention, feed-forward and head
  ActivationBuffer q;                // [T, H*Dh]
  std::vector<float> k;              // [T, K*Dh]
  std::vector<float> v;              // [T, K*Dh]
  ActivationBuffer attention;        // [T, H*Dh]
  std::vector<float> attention_out;  // [T, D]
  std::vector<float> ffn_out;        // [T, D]
  ActivationBuffer
      head;  // [2 logits_max, D]: the head's inputs, then the rounding errors of their Q8 forms
  std::vector<float> logits;  // [2 logits_max, V]: the first half holds the sums
  // The buffers of a tile of tokens, by thread. R: rows of a tile, which are the tokens' query
  // heads of one kv head.
  std::vector<ActivationBuffer> tile_q;    // [R, Dh]
  std::vector<std::vector<float>> scores;  // [R, kKvBlock]
  AttentionParts running, chunk;           // R heads
  AttentionParts parts;                    // of one token, by chunk of positions
  RopeTable rope;
  RopeTable window_rope;  // of layers with a window if rotated differently, else empty

  // Rotations of positions [0, positions).
  void Cover(int positions) {
    rope.Cover(positions);
    window_rope.Cover(positions);
  }

 private:
  Workspace() = default;
  // Calls array(vector, elements) or buffer(buffer, its sizes) for each of the above.
  template <typename Array, typename Buffer>
  void ForEach(const Params& params, const Array& array, const Buffer& buffer);
};

}  // namespace thermocline::nn
