// One side of `eval`'s comparison: a model with its settings, while it computes a text.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/api/ffn_stats.h"
#include "engine/load/loaded_model.h"
#include "tools/eval/predictor_report.h"

namespace thermocline::tools {

inline constexpr int kPrefillChunk = 32;  // tokens whose logits are computed at once

class Side {
 public:
  // A lossy mode computes as many tokens at once as share rows in decoding. `decode`: one token at
  // a time.
  static Result<std::unique_ptr<Side>> Create(const ModelOptions& options, bool decode);

  // Allocates for so many tokens. OutOfRange beyond the model's context.
  Status Prepare(int context_length);
  // Audits every token from now on. Requires: Prepare was not called. FailedPrecondition without
  // predictors.
  Status Audit();
  // Requires: Audit.
  PredictorReport Report() const { return MakeReport(*model_, *auditor_, transformer_->ffn()); }

  // Forgets the tokens from `length` on. A model with recurrent layers goes back only to where it
  // was when it was first rewound to `length`.
  void Rewind(int length = 0);
  // Logits [T, V] of the next tokens, at most kPrefillChunk.
  Result<std::span<const float>> Logits(std::span<const int> tokens);
  // Logits [V] after a prompt that is computed losslessly, or after one decoded token.
  Result<std::span<const float>> ReadPrompt(std::span<const int> tokens);
  Result<std::span<const float>> Decode(int token);

  // The work of decoded tokens, by layer.
  std::vector<FfnLayerStats> Work() const;

  const load::LoadedModel& model() const { return *model_; }
  std::size_t vocab_size() const { return model_->config.vocab_size; }
  bool lossless() const;

 private:
  void AuditToken();

  std::unique_ptr<load::LoadedModel> model_;
  std::unique_ptr<ffn::Auditor> auditor_;
  std::unique_ptr<exec::Transformer> transformer_;
  std::unique_ptr<nn::KvCache> cache_;
  std::vector<float> state_;  // of recurrent layers, behind state_length_ tokens
  int state_length_ = 0;
  int chunk_ = 1;
  exec::Transformer::Step step_ = exec::Transformer::Step::kPrefill;
  std::vector<float> logits_;  // [kPrefillChunk, V]
};

}  // namespace thermocline::tools
