// Mode inputs: the matrices of a layer's attention and network read only the weights of inputs that
// count. For models whose activations have no exact zeros.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "engine/base/index.h"
#include "engine/ffn/sparse_ffn.h"
#include "engine/model/weights/input_major.h"
#include "engine/nn/input_products.h"

namespace thermocline::exec {

// Decode thread only. Borrows all its parameters; allocates nothing after construction.
class InputSparsity {
 public:
  struct Params {
    const ffn::FfnContext& context;
    const predictor::Predictors& predictors;  // the rules
    const model::InputMajor* weights;         // null: zeros are multiplied, nothing is saved
    int tokens_max;                           // T
  };
  explicit InputSparsity(const Params& params);
  // Returns nothing if the predictors, which may be null, have no rules. `tokens_max`: of a step.
  static std::optional<InputSparsity> ForRules(const predictor::Predictors* predictors,
                                               const model::InputMajor* weights,
                                               const ffn::FfnContext& context, int tokens_max);
  static std::size_t Bytes(const model::ModelConfig& config, int tokens_max, int threads);
  // Returns OK if this mode supports the model, else FailedPrecondition with the reason.
  static Status Can(const model::ModelConfig& config);

  // Selects the layer whose products follow, and its operating point (FfnPolicy::input_point).
  void Enter(int layer, int point) {
    layer_ = layer;
    point_ = point >= 0 ? point : predictors_.input_point;
  }
  // q, k and v [T, ...] of `hidden` [T, D]; k and v are unchanged if the layer has none.
  void Project(const float* hidden, int tokens, float* q, float* k, float* v);
  // out [T, D] of the heads' output [T, H Dh].
  void Output(const float* attention, int tokens, float* out);
  // out [T, D] of `hidden` [T, D].
  void FeedForward(const float* hidden, int tokens, float* out);

  // The counts since the start.
  const nn::InputCounts& counts(int layer, model::InputKind kind) const {
    return counts_[layer][base::Index(kind)];
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
