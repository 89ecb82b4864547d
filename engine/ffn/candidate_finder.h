// Finds the neurons of a layer that a step's tokens may need: those that a predictor names, or all.
//
// *Source:* kernels/sign_predict.h; low-rank predictors as in PowerInfer (Song et al. 2024).
#pragma once

#include <optional>

#include "engine/ffn/ffn_context.h"
#include "engine/ffn/ffn_step.h"
#include "engine/ffn/neuron_list.h"
#include "engine/ffn/range_ids.h"
#include "engine/predictor/predictors.h"

namespace thermocline::ffn {

// Decode thread only, except Find. Allocates nothing after construction.
class CandidateFinder {
 public:
  // predictors: of the members, in their order; null: none. Borrowed. tokens_max: tokens of a step
  // that predicts. slots: steps prepared at the same time; with more than one, no low rank.
  CandidateFinder(const FfnContext& context, const predictor::Predictors* predictors,
                  int tokens_max, int slots = 1);
  // Bytes that a construction with these sizes allocates.
  static std::size_t Bytes(const FfnSizes& sizes, int slots = 1);

  // Computes the data that all ranges of the layer share: the bits of the inputs, or fc1's
  // products. Valid until the next call for the same slot.
  void Prepare(const FfnStep& step);
  // The range's candidates, valid until the thread's next call. Requires: Prepare with this step.
  const NeuronList& Find(const FfnStep& step, const NeuronRange& range, int thread);
  // The whole layer's candidates of a step of one token, ascending, until the next call.
  std::span<const int> FindAll(const FfnStep& step);

  // The policy that predicts a layer's neurons for reading ahead: by its own policy's mode, or by
  // any available predictor.
  std::optional<FfnPolicy> ReadAheadPolicy(int layer, const FfnPolicy& policy) const;
  // The bytes that a prediction for the layer reads.
  std::int64_t PredictorBytes(int layer, FfnMode mode) const;
  // Multiply-adds, or words of 32 signs, of a token.
  std::int64_t PredictorOperations(int layer, FfnMode mode) const;

 private:
  // Buffers of one thread.
  struct Scratch {
    explicit Scratch(int tokens_max);
    std::vector<std::int32_t> scores;  // [kRange] of one token
    std::vector<float> logits;         // [T, kRange]
    std::vector<std::uint16_t> marks;  // [kRange] the tokens that a neuron is predicted for
    NeuronList found;
  };

  const predictor::LayerPredictors& Of(int layer) const { return predictors_->layers[layer]; }
  void PrepareSigns(const FfnStep& step);
  void PrepareLowRank(const FfnStep& step);
  // These functions fill s.marks. DrawMarks makes as many marks as the prediction had, at random
  // places that depend only on the input.
  void DrawMarks(const FfnStep& step, const NeuronRange& range, Scratch& s) const;
  void MarkBySigns(const FfnStep& step, const NeuronRange& range, Scratch& s) const;
  void MarkByLogits(const FfnStep& step, const NeuronRange& range, Scratch& s) const;

  const FfnContext context_;
  const predictor::Predictors* const predictors_;
  const int tokens_max_;                         // T
  std::vector<float> sign_columns_;              // [D] the chosen elements of a token's input
  std::vector<std::uint64_t> sign_words_;        // [slots, T, words]
  std::vector<kernels::SignInput> sign_inputs_;  // [slots, T] of sign_words_
  nn::ActivationBuffer residual_;                // [T, D] the input of fc1 before the norm
  nn::ActivationBuffer low_rank_;                // [T, R max] relu(fc1 x), of the layer's R
  std::vector<Scratch> scratch_;                 // by thread
  RangeIds all_;                                 // of FindAll
};

}  // namespace thermocline::ffn
