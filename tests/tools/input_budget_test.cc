// Shares of inputs that may be skipped: the share of each layer, and the cost of a single layer
// independent of the others.
#include "tools/calibrate/input_budget.h"

#include <numeric>

#include "tests/engine/exec/ffn_models.h"
#include "tools/common/ffn_recorder.h"

namespace thermocline::tools {
namespace {

constexpr std::size_t kLayers = 6;

class InputBudgetTest : public exec::FfnModels {
 protected:
  void SetUp() override {
    FfnModels::SetUp();
    load::LoadOptions options;
    options.model.path = Convert(exec::kTidepoolFolder, {.type = kernels::DType::kQ8_0,
                                                         .down = model::DownLayout::kColumns});
    options.model.threads = 1;
    model_ = *load::LoadModel(options);
    text_.emplace_back(48);
    std::iota(text_.front().begin(), text_.front().end(), 40);
    profile_.emplace(*model_, InputSize::kOwn);
    ASSERT_TRUE(RunWindows(
                    *model_, text_, *profile_, {}, [](double) {}, &*profile_)
                    .ok());
    trials_.emplace(*model_, 48);
  }

  std::vector<BlockErrors> Errors(std::span<const InputShares> shares) {
    std::vector<InputRuleSet> sets;
    for (const InputShares& of : shares) sets.push_back(RulesOf(*profile_, of));
    return *trials_->RunBlocks(text_, sets);
  }
  static double Sum(const std::vector<double>& squares) {
    return std::accumulate(squares.begin(), squares.end(), 0.0);
  }
  static InputShares AllOf(double share) {
    InputShares shares(kLayers);
    for (auto& kinds : shares) kinds.fill(share);
    return shares;
  }
  // The skipped share of a layer's bytes.
  double LeftOut(const InputShares& shares, std::size_t layer) const {
    double all = 0, left_out = 0;
    for (int k = 0; k < model::kInputKinds; ++k) {
      for (const model::Linear* m :
           MatricesOf(model_->weights->layers[layer], static_cast<model::InputKind>(k))) {
        all += static_cast<double>(m->weight.bytes());
        left_out += static_cast<double>(m->weight.bytes()) * shares[layer][k];
      }
    }
    return left_out / all;
  }

  std::unique_ptr<load::LoadedModel> model_;
  std::vector<Window> text_;
  std::optional<InputProfile> profile_;
  std::optional<InputTrials> trials_;
};

TEST_F(InputBudgetTest, ALayerIsMeasuredAlone) {
  InputShares second = InputShares(kLayers), all = AllOf(0.6);
  second[1].fill(0.6);
  const auto errors = Errors(std::array{AllOf(0), AllOf(0.3), second, all});
  for (std::size_t l = 0; l < kLayers; ++l) {
    EXPECT_EQ(Sum(errors[0][l]), 0) << l;
    EXPECT_GT(Sum(errors[3][l]), Sum(errors[1][l])) << l;
    // Inputs skipped in other layers do not affect this one.
    EXPECT_EQ(Sum(errors[2][l]), l == 1 ? Sum(errors[3][l]) : 0) << l;
  }
}

TEST_F(InputBudgetTest, EveryLayerLeavesOutAsMuchByLayer) {
  InputBudget budget(*model_, *profile_, text_, *trials_);
  const std::array shares = {0.2, 0.5};
  const auto by_layer = *budget.For(BudgetKind::kBlock, shares, [](double) {});
  const auto equal = *budget.For(BudgetKind::kEqual, shares, [](double) {});
  const auto errors = Errors(std::array{by_layer[0], equal[0], by_layer[1], equal[1]});
  double all = 0, all_equal = 0;
  for (std::size_t l = 0; l < kLayers; ++l) {
    for (std::size_t i = 0; i < shares.size(); ++i) {
      EXPECT_NEAR(LeftOut(by_layer[i], l), shares[i], 0.01) << l;
      EXPECT_NEAR(LeftOut(equal[i], l), shares[i], 1e-9) << l;
      all += Sum(errors[2 * i][l]);
      all_equal += Sum(errors[2 * i + 1][l]);
    }
  }
  EXPECT_LT(all, 0.8 * all_equal);
}

TEST_F(InputBudgetTest, LayersDifferByModel) {
  InputBudget budget(*model_, *profile_, text_, *trials_);
  const std::array shares = {0.3};
  const auto by_model = *budget.For(BudgetKind::kModel, shares, [](double) {});
  double sum = 0, least = 1, most = 0;
  for (std::size_t l = 0; l < kLayers; ++l) {
    const double left_out = LeftOut(by_model[0], l);
    sum += left_out;
    least = std::min(least, left_out);
    most = std::max(most, left_out);
  }
  EXPECT_NEAR(sum / kLayers, 0.3, 0.01);
  EXPECT_GT(most, least + 0.02);
}

}  // namespace
}  // namespace thermocline::tools
