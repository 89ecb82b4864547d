#include "tools/eval/side.h"

#include <algorithm>

#include "tools/common/model_options.h"

namespace thermocline::tools {

Result<std::unique_ptr<Side>> Side::Create(const ModelOptions& options, bool decode) {
  auto side = std::make_unique<Side>();
  ASSIGN_OR_RETURN(side->model_, LoadWithProgress(options));
  const bool lossless = side->lossless();
  side->step_ =
      lossless && !decode ? exec::Transformer::Step::kPrefill : exec::Transformer::Step::kDecode;
  side->chunk_ = decode ? 1 : lossless ? kPrefillChunk : ffn::kSparseTokensMax;
  return side;
}

bool Side::lossless() const {
  return std::all_of(model_->ffn_modes.begin(), model_->ffn_modes.end(), IsLossless);
}

Status Side::Prepare(int context_length) {
  if (context_length > model_->config.max_position_embeddings) {
    return base::OutOfRange("a window of ", context_length,
                            " tokens does not fit the model's context of ",
                            model_->config.max_position_embeddings);
  }
  transformer_ = model_->MakeTransformer(chunk_, context_length, chunk_);
  if (auditor_ != nullptr) transformer_->SetAuditor(auditor_.get());
  ASSIGN_OR_RETURN(cache_, model_->MakeCache(context_length));
  logits_.resize(kPrefillChunk * vocab_size());
  return OkStatus();
}

Status Side::Audit() {
  const auto& modes = model_->ffn_modes;
  const auto predicts = [](FfnMode m) { return m == FfnMode::kSign || m == FfnMode::kLowRank; };
  if (std::none_of(modes.begin(), modes.end(), predicts)) {
    return base::FailedPrecondition(
        "--predictor: no layer is in a mode that predicts; give --ffn-mode sign or lowrank");
  }
  auditor_ = std::make_unique<ffn::Auditor>(ffn::Auditor::Params{.config = model_->config,
                                                                 .predictors = *model_->predictors,
                                                                 .ops = *model_->ops,
                                                                 .interval = 1,
                                                                 .sweep = kSweep});
  return OkStatus();
}

void Side::Rewind(int length) {
  const bool recurrent = length > 0 && model_->config.recurrent.any();
  if (recurrent && cache_->length() == length) {
    state_.assign(cache_->state().begin(), cache_->state().end());
    state_length_ = length;
  }
  cache_->SetLength(length);
  if (!recurrent) return;
  CHECK_EQ(state_length_, length);
  cache_->RestoreState(state_);
}

Result<std::span<const float>> Side::Logits(std::span<const int> tokens) {
  transformer_->ffn().SetCounting(chunk_ == 1);  // tokens that share a step are not counted
  for (std::size_t at = 0; at < tokens.size(); at += chunk_) {
    const std::size_t count = std::min<std::size_t>(chunk_, tokens.size() - at);
    ASSIGN_OR_RETURN(const auto logits,
                     transformer_->Forward(tokens.subspan(at, count), *cache_,
                                           exec::Transformer::Logits::kAll, step_));
    AuditToken();
    std::copy(logits.begin(), logits.end(), logits_.begin() + at * vocab_size());
  }
  return std::span<const float>(logits_).first(tokens.size() * vocab_size());
}

Result<std::span<const float>> Side::ReadPrompt(std::span<const int> tokens) {
  transformer_->ffn().SetCounting(false);
  std::span<const float> last;
  for (std::size_t at = 0; at < tokens.size(); at += chunk_) {
    const std::size_t count = std::min<std::size_t>(chunk_, tokens.size() - at);
    ASSIGN_OR_RETURN(last, transformer_->Forward(tokens.subspan(at, count), *cache_,
                                                 exec::Transformer::Logits::kLast,
                                                 exec::Transformer::Step::kPrefill));
  }
  return last;
}

Result<std::span<const float>> Side::Decode(int token) {
  transformer_->ffn().SetCounting(true);
  return transformer_->Forward(std::span(&token, 1), *cache_, exec::Transformer::Logits::kLast,
                               exec::Transformer::Step::kDecode);
}

std::vector<FfnLayerStats> Side::Work() const {
  std::vector<FfnLayerStats> layers(model_->config.num_hidden_layers);
  for (int l = 0; l < model_->config.num_hidden_layers; ++l) {
    ffn::SetFigures(transformer_->ffn_counters(l), transformer_->ffn().dense_bytes(l),
                    transformer_->ffn().dense_operations(l), layers[l]);
  }
  return layers;
}

void Side::AuditToken() {
  if (auditor_ == nullptr) return;
  auditor_->EndStep();
  while (auditor_->pending()) auditor_->AuditOne(transformer_->audited_sides());
}

}  // namespace thermocline::tools
