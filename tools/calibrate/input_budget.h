// Divides a share of the layers' bytes among the matrices: how many inputs each of them skips.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <vector>

#include "tools/calibrate/input_profile.h"
#include "tools/calibrate/input_trials.h"

namespace thermocline::tools {

// Shares of the inputs, [L][kind].
using InputShares = std::vector<std::array<double, model::kInputKinds>>;

enum class BudgetKind {
  kEqual,  // every matrix skips the same share
  kModel,  // by the cost of each matrix alone to the model's output
  kBlock,  // equal shares for layers; within a layer by each matrix's cost to the layer's output
};

// The rules with thresholds from the profile's sizes.
InputRuleSet RulesOf(const InputProfile& profile, const InputShares& shares);

// Borrows all its arguments.
class InputBudget {
 public:
  // Called with the progress, from 0 to 1.
  using OnProgress = std::function<void(double)>;

  InputBudget(const load::LoadedModel& model, const InputProfile& profile,
              std::span<const Window> text, InputTrials& trials);

  // The shares for each of `shares` of the layers' bytes, which must increase. Errors as
  // InputTrials.
  Result<std::vector<InputShares>> For(BudgetKind kind, std::span<const double> shares,
                                       const OnProgress& on_progress);

 private:
  struct Matrix;
  class BlockError;

  Result<std::vector<InputShares>> ByModel(std::span<const double> shares,
                                           const OnProgress& on_progress);
  Result<std::vector<InputShares>> ByBlock(std::span<const double> shares,
                                           const OnProgress& on_progress);
  Result<InputShares> CostsToModel(const OnProgress& on_progress);
  // [tried share][kind], over all layers.
  Result<std::vector<BlockErrors>> ErrorsOfBlocks(const OnProgress& on_progress);

  std::vector<Matrix> MatricesOf(std::size_t layer) const;
  std::vector<Window> Text(int tokens) const;
  // The sum of the squares of sizes below a share of the inputs.
  double SquaresOf(std::size_t layer, std::size_t kind, double share) const;
  double TriedShare(std::size_t layer, std::size_t kind) const;

  const load::LoadedModel& model_;
  const InputProfile& profile_;
  const std::span<const Window> text_;
  InputTrials& trials_;
  const std::size_t layers_;
};

}  // namespace thermocline::tools
