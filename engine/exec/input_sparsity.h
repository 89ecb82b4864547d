// Mode inputs: a layer's matrices read only the weights of inputs that count, attention's and the
// network's. For models whose activations have no true zeros.
#pragma once

#include <array>
#include <vector>

#include "engine/ffn/sparse_ffn.h"
#include "engine/model/input_major.h"
#include "engine/nn/input_products.h"

namespace thermocline::exec {

// Decode thread only. Borrows all it is given; allocates nothing after construction.
class InputSparsity {
 public:
  struct Params {
    const ffn::FfnContext& context;
    const predictor::Predictors& predictors;  // the rules
    const model::InputMajor* weights;         // null: zeros are multiplied, nothing is saved
    int tokens_max;                           // T
  };
  explicit InputSparsity(const Params& params);
  static std::size_t Bytes(const model::ModelConfig& config, int tokens_max, int threads);
  // Checks that a layer of this model can be computed so; FailedPrecondition says why not.
  static Status Can(const model::ModelConfig& config);

  // The layer whose matrices are next, and what may be left out there (FfnPolicy::input_point).
  void Enter(int layer, int point) {
    layer_ = layer;
    point_ = point >= 0 ? point : predictors_.input_point;
  }
  // q, k and v [T, ...] of `hidden` [T, D]; k and v are not touched where the layer has none.
  void Project(const float* hidden, int tokens, float* q, float* k, float* v);
  // out [T, D] of what the heads gave [T, H Dh].
  void Output(const float* attention, int tokens, float* out);
  // out [T, D] of `hidden` [T, D].
  void FeedForward(const float* hidden, int tokens, float* out);

  // Since the start.
  const nn::InputCounts& counts(int layer, model::InputKind kind) const {
    return counts_[layer][static_cast<int>(kind)];
  }

 private:
  void Multiply(model::InputKind kind, std::span<const nn::Product> products, const float* x,
                int tokens);

  const ffn::FfnContext& context_;
  const predictor::Predictors& predictors_;
  const model::InputMajor* const weights_;
  nn::InputProducts products_;
  int layer_ = 0, point_ = 0;
  std::vector<float> gate_, up_;                                         // [T, F]
  std::vector<std::array<nn::InputCounts, model::kInputKinds>> counts_;  // [L]
};

}  // namespace thermocline::exec
