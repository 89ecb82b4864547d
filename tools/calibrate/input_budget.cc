#include "tools/calibrate/input_budget.h"

#include <algorithm>
#include <cmath>

#include "engine/base/index.h"
#include "engine/base/ratio.h"

namespace thermocline::tools {
namespace {

using model::InputKind;

constexpr std::size_t kKinds = model::kInputKinds;
constexpr int kSteps = 95;       // steps of 0.01; the maximum that a matrix may skip
constexpr int kSetsAtOnce = 16;  // number of rule sets that share the steps of the full model

// Parameters for the cost of a single matrix to the model.
// The skipped inputs carry at least this share of the sum of squares.
constexpr double kTriedSquares = 0.02;
constexpr double kTried = 0.5;  // share of skipped inputs
constexpr int kModelTokens = 256;

// Parameters for the cost of a single matrix to its layer's output.
constexpr std::array kTriedOfBlock = {0.1, 0.25, 0.4, 0.55, 0.7, 0.85, kSteps / 100.0};
constexpr int kBlockTokens = 512;

std::int64_t BytesOf(const model::LayerWeights& layer, InputKind kind) {
  std::int64_t bytes = 0;
  for (const model::Linear* matrix : model::MatricesOf(layer, kind))
    bytes += matrix->weight.bytes();
  if (kind == InputKind::kDown) bytes += layer.down_rows.bytes();
  return bytes;
}

}  // namespace

InputRuleSet RulesOf(const InputProfile& profile, const InputShares& shares) {
  InputRuleSet rules(shares.size());
  for (int l = 0; l < base::IntSize(shares); ++l) {
    for (std::size_t k = 0; k < kKinds; ++k) {
      const auto kind = static_cast<InputKind>(k);
      const int layer = l;
      rules[l].of[k].thresholds = {profile.ThresholdFor(layer, kind, shares[l][k])};
      rules[l].of[k].weights = profile.weights(layer, kind);
    }
  }
  return rules;
}

struct InputBudget::Matrix {
  std::size_t layer, kind;
  double bytes;
  int step = 0;  // hundredths that are skipped

  bool whole() const { return step >= kSteps; }
};

namespace {

// Gives hundredths one by one to the matrix with the lowest price(matrix), until `bytes` are
// skipped. Source: TEAL (Liu et al. 2024), which gives a matrix the same bytes per step, whatever
// its size.
template <typename Matrix, typename Price, typename OnStep>
void LeaveOut(std::vector<Matrix>& matrices, double bytes, const Price& price,
              const OnStep& on_step) {
  double left_out = 0;
  for (const Matrix& m : matrices) left_out += m.bytes * m.step / 100;
  const auto dearness = [&](const Matrix& m) { return m.whole() ? INFINITY : price(m) / m.bytes; };
  while (left_out < bytes) {
    std::vector<double> prices(matrices.size());
    std::transform(matrices.begin(), matrices.end(), prices.begin(), dearness);
    const auto least = std::min_element(prices.begin(), prices.end());
    Matrix& cheapest = matrices[least - prices.begin()];
    if (cheapest.whole()) return;
    on_step(cheapest);
    ++cheapest.step;
    left_out += cheapest.bytes / 100;
  }
}

template <typename Matrix>
double BytesOfAll(const std::vector<Matrix>& matrices) {
  double bytes = 0;
  for (const Matrix& m : matrices) bytes += m.bytes;
  return bytes;
}

}  // namespace

// The error of one layer's output: the mean over its elements of the root of the tokens' squared
// errors, as in TEAL's code. The squares of matrices are added, since their errors are nearly
// independent.
class InputBudget::BlockError {
 public:
  // `tried` as in ErrorsOfBlocks.
  BlockError(const InputBudget& budget, std::span<const BlockErrors> tried, std::size_t layer)
      : sum_(tried.front()[layer].size()) {
    for (std::size_t k = 0; k < kKinds; ++k) {
      at_[k].emplace_back(sum_.size());
      for (int step = 1; step <= kSteps; ++step)
        at_[k].push_back(Between(budget, tried, layer, k, step / 100.0));
    }
  }

  // The additional error of one more hundredth.
  double Price(const Matrix& m) const {
    const auto& now = at_[m.kind][m.step];
    const auto& next = at_[m.kind][m.step + 1];
    double more = 0;
    for (std::size_t i = 0; i < sum_.size(); ++i)
      more += std::sqrt(std::max(0.0, sum_[i] - now[i] + next[i])) - std::sqrt(sum_[i]);
    return more;
  }
  void Step(const Matrix& m) {
    const auto& now = at_[m.kind][m.step];
    const auto& next = at_[m.kind][m.step + 1];
    for (std::size_t i = 0; i < sum_.size(); ++i)
      sum_[i] = std::max(0.0, sum_[i] - now[i] + next[i]);
  }

 private:
  // Interpolates between two tried shares: errors grow with the squares of the skipped inputs.
  static std::vector<double> Between(const InputBudget& budget, std::span<const BlockErrors> tried,
                                     std::size_t layer, std::size_t kind, double share) {
    const std::size_t above =
        std::lower_bound(kTriedOfBlock.begin(), kTriedOfBlock.end() - 1, share - 1e-9) -
        kTriedOfBlock.begin();
    std::vector<double> errors = tried[above * kKinds + kind][layer];
    const auto squares = [&](double of) { return budget.SquaresOf(layer, kind, of); };
    const double below = above > 0 ? squares(kTriedOfBlock[above - 1]) : 0;
    const double range = squares(kTriedOfBlock[above]) - below;
    const double part = range > 0 ? std::min(1.0, (squares(share) - below) / range) : 1;
    for (std::size_t i = 0; i < errors.size(); ++i) {
      const double from = above > 0 ? tried[(above - 1) * kKinds + kind][layer][i] : 0;
      errors[i] = from + part * (errors[i] - from);
    }
    return errors;
  }

  std::array<std::vector<std::vector<double>>, kKinds> at_;  // [kind][step][D]
  std::vector<double> sum_;                                  // [D]
};

InputBudget::InputBudget(const load::LoadedModel& model, const InputProfile& profile,
                         std::span<const Window> text, InputTrials& trials)
    : model_(model),
      profile_(profile),
      text_(text),
      trials_(trials),
      layers_(model.weights->layers.size()) {}

Result<std::vector<InputShares>> InputBudget::For(BudgetKind kind, std::span<const double> shares,
                                                  const OnProgress& on_progress) {
  if (kind == BudgetKind::kModel) return ByModel(shares, on_progress);
  if (kind == BudgetKind::kBlock) return ByBlock(shares, on_progress);
  std::vector<InputShares> all;
  for (const double share : shares) {
    all.emplace_back(layers_);
    for (auto& kinds : all.back()) kinds.fill(share);
  }
  return all;
}

Result<std::vector<InputShares>> InputBudget::ByModel(std::span<const double> shares,
                                                      const OnProgress& on_progress) {
  ASSIGN_OR_RETURN(const InputShares costs, CostsToModel(on_progress));
  std::vector<Matrix> matrices;
  for (std::size_t l = 0; l < layers_; ++l)
    for (const Matrix& m : MatricesOf(l)) matrices.push_back(m);
  const auto price = [&](const Matrix& m) {
    return costs[m.layer][m.kind] * (SquaresOf(m.layer, m.kind, (m.step + 1) / 100.0) -
                                     SquaresOf(m.layer, m.kind, m.step / 100.0));
  };
  std::vector<InputShares> all;
  for (const double share : shares) {
    LeaveOut(matrices, share * BytesOfAll(matrices), price, [](const Matrix&) {});
    all.emplace_back(layers_);
    for (const Matrix& m : matrices) all.back()[m.layer][m.kind] = m.step / 100.0;
  }
  return all;
}

Result<std::vector<InputShares>> InputBudget::ByBlock(std::span<const double> shares,
                                                      const OnProgress& on_progress) {
  ASSIGN_OR_RETURN(const auto tried, ErrorsOfBlocks(on_progress));
  std::vector<InputShares> all(shares.size(), InputShares(layers_));
  model_.pool->Run(base::IntSize(all.front()), [&](int layer, int) {
    const std::size_t l = layer;
    std::vector<Matrix> matrices = MatricesOf(l);
    BlockError error(*this, tried, l);
    for (std::size_t i = 0; i < shares.size(); ++i) {
      LeaveOut(
          matrices, shares[i] * BytesOfAll(matrices),
          [&](const Matrix& m) { return error.Price(m); }, [&](const Matrix& m) { error.Step(m); });
      for (const Matrix& m : matrices) all[i][l][m.kind] = m.step / 100.0;
    }
  });
  return all;
}

// The cost in nats per unit of the squares of the skipped inputs.
Result<InputShares> InputBudget::CostsToModel(const OnProgress& on_progress) {
  const std::vector<Window> text = Text(kModelTokens);
  InputShares costs(layers_);
  const std::size_t count = layers_ * kKinds;
  for (std::size_t first = 0; first < count; first += kSetsAtOnce) {
    on_progress(base::Ratio(first, count));
    std::vector<InputRuleSet> sets;
    for (std::size_t i = first; i < std::min(count, first + kSetsAtOnce); ++i) {
      InputShares alone(layers_);
      alone[i / kKinds][i % kKinds] = TriedShare(i / kKinds, i % kKinds);
      sets.push_back(RulesOf(profile_, alone));
    }
    ASSIGN_OR_RETURN(const auto scores, trials_.Run(text, sets));
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const std::size_t l = (first + i) / kKinds, k = (first + i) % kKinds;
      costs[l][k] = scores[i].kl / std::max(1e-9, SquaresOf(l, k, TriedShare(l, k)));
    }
  }
  return costs;
}

Result<std::vector<BlockErrors>> InputBudget::ErrorsOfBlocks(const OnProgress& on_progress) {
  const std::vector<Window> text = Text(kBlockTokens);
  std::vector<BlockErrors> all;
  for (std::size_t i = 0; i < kTriedOfBlock.size(); ++i) {
    on_progress(base::Ratio(i, kTriedOfBlock.size()));
    std::vector<InputRuleSet> sets;
    for (std::size_t k = 0; k < kKinds; ++k) {
      InputShares alone(layers_);
      for (auto& kinds : alone) kinds[k] = kTriedOfBlock[i];
      sets.push_back(RulesOf(profile_, alone));
    }
    ASSIGN_OR_RETURN(auto errors, trials_.RunBlocks(text, sets));
    std::move(errors.begin(), errors.end(), std::back_inserter(all));
  }
  return all;
}

// The layer's matrices, as far as they exist.
std::vector<InputBudget::Matrix> InputBudget::MatricesOf(std::size_t layer) const {
  std::vector<Matrix> matrices;
  for (std::size_t k = 0; k < kKinds; ++k) {
    const std::int64_t bytes = BytesOf(model_.weights->layers[layer], static_cast<InputKind>(k));
    if (bytes > 0) matrices.push_back({layer, k, static_cast<double>(bytes)});
  }
  return matrices;
}

std::vector<Window> InputBudget::Text(int tokens) const {
  std::vector<Window> text;
  for (const Window& window : text_) {
    if (CountTokens(text) >= tokens) break;
    text.push_back(window);
    text.back().resize(std::min<std::size_t>(window.size(), static_cast<std::size_t>(tokens)));
  }
  return text;
}

double InputBudget::SquaresOf(std::size_t layer, std::size_t kind, double share) const {
  return profile_.SquaresBelow(static_cast<int>(layer), static_cast<InputKind>(kind), share);
}

// Half of the inputs, or more if most are zero, so that the skipped ones carry a measurable share.
double InputBudget::TriedShare(std::size_t layer, std::size_t kind) const {
  double share = kTried;
  while (share < kSteps / 100.0 && SquaresOf(layer, kind, share) < kTriedSquares) share += 0.01;
  return share;
}

}  // namespace thermocline::tools
