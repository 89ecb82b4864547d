#include "engine/offline/row_thresholds.h"

#include <algorithm>
#include <cmath>

#include "engine/base/index.h"
#include "engine/base/ratio.h"
#include "engine/offline/row_curve.h"

namespace thermocline::offline {
namespace {

constexpr double kShrinkages[] = {0, 1, 4, 16, 64, 256, 1e9};
constexpr int kBisections = 50;

// The curve of the tokens of `row`, or of all rows if it is negative.
RowCurve CurveOf(const RowSamples& s, int row, bool by_mass) {
  std::vector<std::int32_t> scores;
  std::vector<RowCurve::Active> active;
  const auto add = [&](int token, int col) {
    const std::size_t at = base::Area(token, s.rows()) + col;
    scores.push_back(s.scores[at]);
    if (s.active->Get(token, col))
      active.push_back({.score = s.scores[at], .worth = by_mass ? s.masses[at] : 1.0F});
  };
  for (int token = 0; token < s.tokens(); ++token) {
    if (row >= 0) {
      add(token, row);
    } else {
      for (int col = 0; col < s.rows(); ++col) add(token, col);
    }
  }
  return RowCurve(std::move(scores), std::move(active));
}

// The curves of one layer and of each of its rows.
struct LayerCurves {
  LayerCurves(const RowSamples& samples, bool by_mass, base::WorkerPool& pool)
      : rows(samples.rows()), layer(CurveOf(samples, -1, by_mass)) {
    pool.Run(samples.rows(), [&](int row, int) { rows[row] = CurveOf(samples, row, by_mass); });
  }
  double Caught(std::span<const std::int32_t> thresholds) const {
    double caught = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) caught += rows[i].Caught(thresholds[i]);
    return caught;
  }
  std::int64_t Predicted(std::span<const std::int32_t> thresholds) const {
    std::int64_t predicted = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) predicted += rows[i].Predicted(thresholds[i]);
    return predicted;
  }

  std::vector<RowCurve> rows;
  RowCurve layer;
};

// Every row's threshold at one price, shrunk towards the layer's.
std::vector<std::int32_t> ThresholdsAt(const LayerCurves& train, double price, double shrinkage) {
  const std::int32_t common = train.layer.Best(price);
  std::vector<std::int32_t> out;
  for (const RowCurve& row : train.rows) {
    const auto n = static_cast<double>(row.active_tokens());
    if (n == 0) {
      // The neuron was never active, so it is predicted only for scores above all that were seen.
      out.push_back(std::max(common, row.never()));
      continue;
    }
    const double own = row.Best(price), weight = n / (n + shrinkage);
    out.push_back(static_cast<std::int32_t>(std::lround(weight * own + (1 - weight) * common)));
  }
  return out;
}

// The thresholds at the lowest price that catches `wanted` of the held-out tokens, or at the
// highest price if none does.
std::vector<std::int32_t> ThresholdsFor(const LayerCurves& train, const LayerCurves& held_out,
                                        double wanted, double shrinkage) {
  // A price is the number of predicted tokens that one unit of worth may cost; as a logarithm.
  double low = -30, high = 60;
  for (int i = 0; i < kBisections; ++i) {
    const double middle = (low + high) / 2;
    const auto thresholds = ThresholdsAt(train, std::exp(middle), shrinkage);
    (held_out.Caught(thresholds) < wanted ? low : high) = middle;
  }
  return ThresholdsAt(train, std::exp(high), shrinkage);
}

Status Check(const char* what, const RowSamples& s, const RowSamples& other, bool by_mass) {
  const std::size_t size = base::Area(s.tokens(), s.rows());
  if (s.scores.size() != size || s.rows() != other.rows() ||
      (!s.masses.empty() && s.masses.size() != size)) {
    return base::InvalidArgument("the ", what, " part has ", s.scores.size(), " scores and ",
                                 s.masses.size(), " masses for ", s.tokens(), " tokens and ",
                                 s.rows(), " neurons");
  }
  if (by_mass && s.masses.empty())
    return base::InvalidArgument("thresholds by mass need masses in the ", what, " part");
  if (s.active->Count() == 0) {
    return base::InvalidArgument("no neuron is ever active in the ", what,
                                 " part: there is nothing to calibrate; give a longer text");
  }
  return OkStatus();
}

}  // namespace

ThresholdQuality MeasureThresholds(const RowSamples& s, std::span<const std::int32_t> thresholds) {
  std::int64_t predicted = 0, active = 0, caught = 0;
  double mass = 0, caught_mass = 0;
  const std::size_t f = s.rows();
  for (int token = 0; token < s.tokens(); ++token) {
    const std::size_t at = token * f;
    const auto reaches = [&](std::size_t i) {
      return s.scores[at + i] >= thresholds[thresholds.size() == 1 ? 0 : i];
    };
    for (std::size_t i = 0; i < f; ++i) predicted += reaches(i) ? 1 : 0;
    s.active->ForSet(token, [&](int col) {
      const std::size_t i = col;
      const double worth = s.masses.empty() ? 1 : s.masses[at + i];
      const bool hit = reaches(i);
      ++active;
      caught += hit ? 1 : 0;
      mass += worth;
      caught_mass += hit ? worth : 0;
    });
  }
  const double total = std::max(1.0, s.tokens() * static_cast<double>(f));
  return {.recall = base::Ratio(caught, std::max<std::int64_t>(1, active)),
          .predicted_share = static_cast<double>(predicted) / total,
          .active_share = static_cast<double>(active) / total,
          .missed_mass = mass > 0 ? 1 - caught_mass / mass : 0};
}

Result<RowThresholds> FitRowThresholds(const RowSamples& train, const RowSamples& held_out,
                                       const RowThresholdOptions& options, base::WorkerPool& pool) {
  RETURN_IF_ERROR(Check("training", train, train, options.by_mass));
  RETURN_IF_ERROR(Check("held-out", held_out, train, options.by_mass));
  if (!(options.target > 0 && options.target <= 1))
    return base::InvalidArgument("target is ", options.target, ", expected more than 0, at most 1");
  const LayerCurves train_curves(train, options.by_mass, pool);
  const LayerCurves held_curves(held_out, options.by_mass, pool);
  const double wanted = options.target * held_curves.layer.worth() * (1 - 1e-12);
  RowThresholds best;
  std::int64_t best_predicted = -1;
  for (const double shrinkage : kShrinkages) {
    auto thresholds = ThresholdsFor(train_curves, held_curves, wanted, shrinkage);
    const std::int64_t predicted = held_curves.Predicted(thresholds);
    if (held_curves.Caught(thresholds) < wanted) continue;
    if (best_predicted >= 0 && predicted >= best_predicted) continue;
    best_predicted = predicted;
    best.thresholds = std::move(thresholds);
    best.shrinkage = shrinkage;
  }
  best.common = held_curves.layer.ThresholdFor(wanted);
  if (best_predicted < 0) best.thresholds.assign(train_curves.rows.size(), best.common);
  best.held_out = MeasureThresholds(held_out, best.thresholds);
  best.common_held_out = MeasureThresholds(held_out, std::span(&best.common, 1));
  return best;
}

}  // namespace thermocline::offline
