// Measures the cost of rules of mode inputs: runs a text with them and compares with the full
// model.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/load/loaded_model.h"
#include "tools/common/text_windows.h"

namespace thermocline::tools {

// One rule per layer.
using InputRuleSet = std::vector<predictor::InputRules>;

struct InputScore {
  double kl = 0;                // nats per token, from the full model
  double perplexity_ratio = 1;  // to the full model's
};

// For a set of rules: [L][D] squared errors of each layer's output, summed over tokens.
using BlockErrors = std::vector<std::vector<double>>;

// Every token is computed with the rules, including the first ones.
class InputTrials {
 public:
  // Uses the model's copies, if it has them. Installs rules that skip no inputs in its predictors.
  // `window`: tokens of the longest window.
  InputTrials(load::LoadedModel& model, int window);

  // A score for each set of rules. Errors as Transformer::Forward.
  Result<std::vector<InputScore>> Run(std::span<const Window> windows,
                                      std::span<const InputRuleSet> sets);

  // Runs each layer alone with a set's rules, on the full model's input. The first quarter of a
  // window is ignored: its few KV cache entries include large ones. Source: TEAL (Liu et al. 2024),
  // whose code uses the last quarter.
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
