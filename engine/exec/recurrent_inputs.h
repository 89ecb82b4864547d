// Turns a recurrent layer's projections into the vectors of its recurrence: the convolution over
// the last tokens, the norms of keys and queries, decays and steps.
#pragma once

#include <span>
#include <vector>

#include "engine/base/index.h"
#include "engine/model/weights/weights.h"
#include "kernels/op_table.h"

namespace thermocline::exec {

// Const after construction; borrows all its parameters.
class RecurrentInputs {
 public:
  RecurrentInputs(const model::ModelConfig& config, const model::Weights& weights,
                  const kernels::OpTable& ops);
  static std::size_t Bytes(const model::ModelConfig& config);

  // The taps of a layer, [taps, C]. They are copied to `scratch` [taps, C] if the layer's weights
  // are only temporarily in memory.
  const float* TapsOf(int layer, std::vector<float>& scratch) const;
  // Elements of `scratch`.
  std::size_t taps_size() const { return base::Area(r_.taps, channels_); }

  // out [C] = the activated convolution; the last of `rows` [taps] belongs to the token itself.
  // Keys and queries are normed.
  void Convolve(int layer, const float* taps, std::span<const float* const> rows, float* out) const;
  // gates [2, H] from the projections: decays, then the delta rule's beta (`alpha`, `beta` [H], or
  // both by key head in `alpha` [2H] where `beta` is null) or Mamba's steps (`alpha` [H]).
  void Gates(int layer, const float* alpha, const float* beta, float* gates) const;
  // Returns the values of a token's heads [H, V]: the convolved columns, which Mamba multiplies by
  // the step into `values` [H V].
  const float* Values(const float* columns, const float* gates, float* values) const;
  // The location of a head's key and query in the convolved columns.
  const float* Key(const float* columns, int head) const;
  const float* Query(const float* columns, int head) const;

 private:
  void Transpose(int layer, float* taps) const;

  const model::RecurrentConfig& r_;
  const model::Weights& weights_;
  const kernels::OpTable& ops_;
  const int channels_;
  std::vector<std::vector<float>> taps_;        // [L][taps, C]; empty: read when needed
  std::vector<float> key_scale_, query_scale_;  // [key_dim] L2 norm as weights of an RMS norm
};

}  // namespace thermocline::exec
