// What rules of mode inputs cost: a model with them on a text, beside the whole model.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/load/loaded_model.h"
#include "engine/tools/common/text_windows.h"

namespace thermocline::tools {

// Of all layers.
using InputRuleSet = std::vector<predictor::InputRules>;

struct InputScore {
  double kl = 0;                // nats a token, from the whole model
  double perplexity_ratio = 1;  // to the whole model's
};

// Every token is computed with the rules, the first ones, too.
class InputTrials {
 public:
  // By the model's copies, if it has them. Puts rules into its predictors that leave nothing out.
  // `window`: tokens of the longest.
  InputTrials(load::LoadedModel& model, int window);

  // A score for each set of rules. Errors as Transformer::Forward.
  Result<std::vector<InputScore>> Run(std::span<const Window> windows,
                                      std::span<const InputRuleSet> sets);

 private:
  void Use(const InputRuleSet& rules);
  void SetMode(FfnMode mode);
  Result<std::span<const float>> Logits(std::span<const int> tokens, nn::KvCache& cache);

  load::LoadedModel& model_;
  const int window_;
  InputRuleSet whole_;
  std::unique_ptr<exec::Transformer> transformer_;
};

}  // namespace thermocline::tools
