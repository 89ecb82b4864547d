// What rules of mode inputs cost: a model with them on a text, beside the whole model.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/load/loaded_model.h"
#include "tools/common/text_windows.h"

namespace thermocline::tools {

// Of all layers.
using InputRuleSet = std::vector<predictor::InputRules>;

struct InputScore {
  double kl = 0;                // nats a token, from the whole model
  double perplexity_ratio = 1;  // to the whole model's
};

// Of a set of rules: [L][D] squares of what each layer's output is off by, summed over tokens.
using BlockErrors = std::vector<std::vector<double>>;

// Every token is computed with the rules, the first ones, too.
class InputTrials {
 public:
  // By the model's copies, if it has them. Puts rules into its predictors that leave nothing out.
  // `window`: tokens of the longest.
  InputTrials(load::LoadedModel& model, int window);

  // A score for each set of rules. Errors as Transformer::Forward.
  Result<std::vector<InputScore>> Run(std::span<const Window> windows,
                                      std::span<const InputRuleSet> sets);

  // Each layer alone with a set's rules, given what the whole model has there. The first quarter of
  // a window does not count: its keys are few, and large ones are among them.
  // Source: TEAL (Liu et al. 2024), whose code takes the last quarter.
  Result<std::vector<BlockErrors>> RunBlocks(std::span<const Window> windows,
                                             std::span<const InputRuleSet> sets);

 private:
  class BlockComparison;

  Result<std::vector<std::unique_ptr<nn::KvCache>>> MakeCaches(std::size_t count) const;
  Status CompareWindow(const Window& window, std::span<const InputRuleSet> sets,
                       std::span<const std::unique_ptr<nn::KvCache>> caches,
                       BlockComparison& comparison, std::vector<BlockErrors>& errors);
  void Use(const InputRuleSet& rules);
  void SetMode(FfnMode mode);
  Result<std::span<const float>> Logits(std::span<const int> tokens, nn::KvCache& cache);

  load::LoadedModel& model_;
  const int window_;
  InputRuleSet whole_;
  std::unique_ptr<exec::Transformer> transformer_;
};

}  // namespace thermocline::tools
