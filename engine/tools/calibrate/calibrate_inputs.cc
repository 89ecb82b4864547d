#include "engine/tools/calibrate/calibrate_inputs.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <random>

#include "engine/base/file.h"
#include "engine/base/index.h"
#include "engine/base/ratio.h"
#include "engine/tools/calibrate/input_profile.h"
#include "engine/tools/calibrate/input_trials.h"
#include "engine/tools/common/console.h"
#include "engine/tools/common/eta_bar.h"
#include "engine/tools/common/ffn_recorder.h"
#include "engine/tools/common/svg_plot.h"

namespace thermocline::tools {
namespace {

using model::InputKind;
using model::kInputKinds;

constexpr int kSteps = 95;              // of a hundredth, that a matrix may leave out
constexpr double kTriedSquares = 0.02;  // of their sum, that goes with it at least
constexpr double kTried = 0.5;          // share at which a matrix alone is tried
constexpr int kTrialTokens = 256;       // for each matrix
constexpr int kSetsAtOnce = 16;         // that share the whole model's steps
constexpr double kRecommended = 0.05;   // nats of KL

// Shares [L][kind].
using Shares = std::vector<std::array<double, kInputKinds>>;

struct Method {
  std::string name;
  InputSize size;
  bool measured;        // shares by what each matrix costs, else all alike
  bool random = false;  // which inputs: the same ones for every token
};
// The first two may be chosen; the others are there to compare.
const Method kMethods[] = {{"norm", InputSize::kByNorm, true},
                           {"size", InputSize::kOwn, true},
                           {"norm, equal shares", InputSize::kByNorm, false},
                           {"size, equal shares", InputSize::kOwn, false},
                           {"random", InputSize::kOwn, false, true}};

struct Point {
  double share;
  InputScore score;
};

class InputCalibrator {
 public:
  InputCalibrator(const InputOptions& options, load::LoadedModel& model, SplitWindows windows)
      : options_(options),
        model_(model),
        windows_(std::move(windows)),
        layers_(model.weights->layers.size()) {}

  Status Run(bool compare, OpenSideCar& side_car) {
    RETURN_IF_ERROR(Profile());
    for (int tenths = 1; tenths / 10.0 < options_.share - 0.01; ++tenths)
      shares_.push_back(tenths / 10.0);
    shares_.push_back(options_.share);
    // What each matrix costs is found without the copies, whose rounding would hide it; what is
    // written is what decoding by the copies loses.
    trials_.emplace(model_, LongestWindow());
    for (const Method& method : kMethods) {
      const bool asked = options_.rule == "best" ? method.measured : method.name == options_.rule;
      if (asked || compare) RETURN_IF_ERROR(ChooseRules(method));
    }
    ASSIGN_OR_RETURN(const auto file, model::OpenModelFile(model_.path));
    ASSIGN_OR_RETURN(auto copies, model::MakeInputMajor(*model_.weights, file.get(), *model_.pool));
    model_.input_major = std::make_unique<model::InputMajor>(std::move(copies));
    trials_.emplace(model_, LongestWindow());
    for (std::size_t i = 0; i < results_.size(); ++i) RETURN_IF_ERROR(Measure(i));
    bar_.Clear();
    Write(side_car);
    return side_car.WriteAll();
  }

  const std::vector<std::pair<Method, std::vector<Point>>>& results() const { return results_; }
  // The method with the least divergence at the share asked for.
  const std::pair<Method, std::vector<Point>>& best() const {
    const auto* best = &results_.front();
    for (const auto& result : results_) {
      if (result.first.measured && result.second.back().score.kl < best->second.back().score.kl)
        best = &result;
    }
    return *best;
  }

 private:
  int LongestWindow() const {
    std::size_t most = 0;
    for (const auto* windows : {&windows_.train, &windows_.held_out})
      for (const Window& window : *windows) most = std::max(most, window.size());
    return static_cast<int>(most);
  }

  const InputProfile& ProfileOf(InputSize size) const {
    return size == InputSize::kOwn ? *own_ : *by_norm_;
  }

  Status Profile() {
    own_.emplace(model_, InputSize::kOwn);
    by_norm_.emplace(model_, InputSize::kByNorm);
    for (InputProfile* profile : {&*own_, &*by_norm_}) {
      RETURN_IF_ERROR(RunWindows(
          model_, windows_.train, *profile, {},
          [&](double done) { bar_.Show(done, "sizes of inputs"); }, profile));
    }
    return OkStatus();
  }

  std::int64_t BytesOf(std::size_t layer, InputKind kind) const {
    const model::LayerWeights& w = model_.weights->layers[layer];
    std::int64_t bytes = 0;
    for (const model::Linear* matrix : model::MatricesOf(w, kind))
      bytes += static_cast<std::int64_t>(matrix->weight.bytes());
    if (kind == InputKind::kDown) bytes += static_cast<std::int64_t>(w.down_rows.bytes());
    return bytes;
  }

  InputRuleSet RulesOf(const Method& method, const Shares& shares) const {
    const InputProfile& profile = ProfileOf(method.size);
    InputRuleSet rules(layers_);
    std::mt19937 random(1);
    for (std::size_t l = 0; l < layers_; ++l) {
      for (int k = 0; k < kInputKinds; ++k) {
        const auto kind = static_cast<InputKind>(k);
        const auto layer = static_cast<int>(l);
        auto& rule = rules[l].of[static_cast<std::size_t>(k)];
        if (method.random) {
          rule.thresholds = {1e-20F};
          rule.weights.resize(model::InputsOf(model_.weights->layers[l], kind));
          for (float& weight : rule.weights)
            weight = std::uniform_real_distribution<>()(random) < shares[l][k] ? 0.0F : 1e20F;
          continue;
        }
        rule.thresholds = {profile.ThresholdFor(layer, kind, shares[l][k])};
        rule.weights = profile.weights(layer, kind);
      }
    }
    return rules;
  }

  // Matrix `at` counts through layers and kinds.
  double SquaresOf(const Method& method, std::size_t at, double share) const {
    return ProfileOf(method.size)
        .SquaresBelow(static_cast<int>(at / kInputKinds), static_cast<InputKind>(at % kInputKinds),
                      share);
  }
  // Half of the inputs, or as many as carry something, where most are zero.
  double TriedShare(const Method& method, std::size_t at) const {
    double share = kTried;
    while (share < kSteps / 100.0 && SquaresOf(method, at, share) < kTriedSquares) share += 0.01;
    return share;
  }

  // What leaving out a share of each matrix's inputs alone costs, in nats for a unit of the squares
  // that go with it. Source: the idea of TEAL's greedy budget; it measures a block's output, this
  // the model's.
  Result<Shares> Costs(const Method& method) {
    std::vector<Window> windows;
    for (const Window& window : windows_.train) {
      if (CountTokens(windows) >= kTrialTokens) break;
      windows.push_back(window);
      windows.back().resize(std::min<std::size_t>(window.size(), kTrialTokens));
    }
    Shares costs(layers_);
    const std::size_t count = layers_ * kInputKinds;
    for (std::size_t first = 0; first < count; first += kSetsAtOnce) {
      bar_.Show(base::Ratio(first, count), "each matrix alone, by " + method.name);
      std::vector<InputRuleSet> sets;
      for (std::size_t i = first; i < std::min(count, first + kSetsAtOnce); ++i) {
        Shares alone(layers_);
        alone[i / kInputKinds][i % kInputKinds] = TriedShare(method, i);
        sets.push_back(RulesOf(method, alone));
      }
      ASSIGN_OR_RETURN(const auto scores, trials_->Run(windows, sets));
      for (std::size_t i = 0; i < scores.size(); ++i) {
        const std::size_t at = first + i;
        const double squares = SquaresOf(method, at, TriedShare(method, at));
        costs[at / kInputKinds][at % kInputKinds] = scores[i].kl / std::max(1e-9, squares);
      }
    }
    return costs;
  }

  // Hundredths go one by one to the matrix where a byte costs least.
  Shares Allocate(const Method& method, const Shares& costs, double share) const {
    struct Matrix {
      std::size_t layer;
      int kind;
      double bytes;
      int step = 0;
      std::vector<double> squares = {};  // below each hundredth
    };
    std::vector<Matrix> all;
    double bytes = 0, left_out = 0;
    for (std::size_t l = 0; l < layers_; ++l) {
      for (int k = 0; k < kInputKinds; ++k) {
        const auto kind = static_cast<InputKind>(k);
        Matrix matrix{.layer = l, .kind = k, .bytes = static_cast<double>(BytesOf(l, kind))};
        for (int step = 0; step <= kSteps; ++step)
          matrix.squares.push_back(
              ProfileOf(method.size).SquaresBelow(static_cast<int>(l), kind, step / 100.0));
        bytes += matrix.bytes;
        all.push_back(std::move(matrix));
      }
    }
    const auto price = [&](const Matrix& m) {
      if (m.step >= kSteps) return INFINITY;
      const double more = m.squares[m.step + 1] - m.squares[m.step];
      return static_cast<float>(costs[m.layer][m.kind] * more / m.bytes);
    };
    while (left_out < share * bytes) {
      Matrix& cheapest =
          *std::min_element(all.begin(), all.end(),
                            [&](const Matrix& a, const Matrix& b) { return price(a) < price(b); });
      if (cheapest.step >= kSteps) break;
      ++cheapest.step;
      left_out += cheapest.bytes / 100;
    }
    Shares shares(layers_);
    for (const Matrix& m : all) shares[m.layer][m.kind] = m.step / 100.0;
    return shares;
  }

  // The rules of a method's points.
  Status ChooseRules(const Method& method) {
    Shares costs;
    if (method.measured) {
      ASSIGN_OR_RETURN(costs, Costs(method));
    }
    std::vector<InputRuleSet> sets;
    for (const double share : shares_) {
      Shares shares(layers_);
      for (auto& kinds : shares) kinds.fill(share);
      if (method.measured) shares = Allocate(method, costs, share);
      sets.push_back(RulesOf(method, shares));
    }
    results_.emplace_back(method, std::vector<Point>());
    rules_.push_back(std::move(sets));
    return OkStatus();
  }

  Status Measure(std::size_t result) {
    auto& [method, points] = results_[result];
    bar_.Show(base::Ratio(result, results_.size()), "held-out text, by " + method.name);
    ASSIGN_OR_RETURN(const auto scores, trials_->Run(windows_.held_out, rules_[result]));
    for (std::size_t i = 0; i < shares_.size(); ++i) points.push_back({shares_[i], scores[i]});
    return OkStatus();
  }

  void Write(OpenSideCar& side_car) const {
    const std::size_t at = static_cast<std::size_t>(&best() - results_.data());
    side_car.content.input_points.clear();
    for (const Point& p : best().second)
      side_car.content.input_points.push_back(
          {.share = p.share, .kl = p.score.kl, .perplexity_ratio = p.score.perplexity_ratio});
    for (std::size_t l = 0; l < layers_; ++l) {
      predictor::InputCalibration& to = side_car.content.layers[l].inputs.emplace();
      for (const InputRuleSet& set : rules_[at])
        for (const auto& rule : set[l].of) to.thresholds.push_back(rule.thresholds.front());
      for (std::size_t k = 0; k < to.weights.size(); ++k)
        to.weights[k] = rules_[at].front()[l].of[k].weights;
    }
  }

  const InputOptions& options_;
  load::LoadedModel& model_;
  const SplitWindows windows_;
  const std::size_t layers_;
  std::vector<double> shares_;
  std::optional<InputProfile> own_, by_norm_;
  std::optional<InputTrials> trials_;
  std::vector<std::pair<Method, std::vector<Point>>> results_;
  std::vector<std::vector<InputRuleSet>> rules_;  // of the results' points
  EtaBar bar_;
};

Status WritePlot(const std::string& path, const InputCalibrator& calibrator) {
  Plot kl{.title = "Divergence from the whole model, held-out text"},
      perplexity{.title = "Perplexity, held-out text"};
  kl.x = perplexity.x = {.label = "share of the layers' weights that is not read", .percent = true};
  kl.y = {.label = "KL, nats a token"};
  perplexity.y = {.label = "ratio to the whole model's"};
  const auto colors = PlotColors(base::IntSize(calibrator.results()));
  for (std::size_t i = 0; i < calibrator.results().size(); ++i) {
    const auto& [method, points] = calibrator.results()[i];
    PlotSeries of_kl{.label = method.name, .color = colors[i]}, of_perplexity = of_kl;
    for (const Point& p : points) {
      of_kl.points.emplace_back(p.share, p.score.kl);
      of_perplexity.points.emplace_back(p.share, p.score.perplexity_ratio);
    }
    kl.series.push_back(of_kl);
    perplexity.series.push_back(of_perplexity);
  }
  ASSIGN_OR_RETURN(const auto file, base::FileWriter::Create(path));
  RETURN_IF_ERROR(file->Append(RenderSvg(std::vector{kl, perplexity}, 2)));
  return file->Commit();
}

Json ResultJson(const std::pair<Method, std::vector<Point>>& result) {
  Json::Array points;
  for (const Point& p : result.second)
    points.push_back(Json::Object{
        {"share", p.share}, {"kl", p.score.kl}, {"perplexity_ratio", p.score.perplexity_ratio}});
  return Json::Object{{"rule", result.first.name}, {"points", std::move(points)}};
}

void Print(const InputCalibrator& calibrator, const std::string& path) {
  std::printf("not read   ");
  for (const auto& [method, points] : calibrator.results())
    std::printf("  %-26s", method.name.c_str());
  std::printf("\n           ");
  for (std::size_t i = 0; i < calibrator.results().size(); ++i)
    std::printf("  %-26s", "KL      perplexity");
  std::printf("\n");
  for (std::size_t p = 0; p < calibrator.best().second.size(); ++p) {
    std::printf("   %5.1f%%   ", 100 * calibrator.best().second[p].share);
    for (const auto& [method, points] : calibrator.results())
      std::printf("  %.4f  %+8.2f%%        ", points[p].score.kl,
                  100 * (points[p].score.perplexity_ratio - 1));
    std::printf("\n");
  }
  const Point* recommended = nullptr;
  for (const Point& p : calibrator.best().second)
    if (p.score.kl <= kRecommended) recommended = &p;
  std::printf("the rule '%s' is in %s", calibrator.best().first.name.c_str(), path.c_str());
  if (recommended != nullptr)
    std::printf("; recommended: %.0f%% (KL at most %.2f nats, --kl-max)", 100 * recommended->share,
                kRecommended);
  std::printf("\n");
}

}  // namespace

Status CalibrateInputs(const InputOptions& options, load::LoadedModel& model, SplitWindows windows,
                       OpenSideCar side_car) {
  RETURN_IF_ERROR(exec::InputSparsity::Can(model.config));
  if (model.weights->has_down_rows())
    return base::FailedPrecondition(
        "mode 'inputs' reads a down projection along columns, and this one is neuron-major; "
        "`thermocline convert --down columns` makes such a file");
  InputCalibrator calibrator(options, model, std::move(windows));
  RETURN_IF_ERROR(calibrator.Run(options.compare, side_car));
  if (!options.plot.empty()) RETURN_IF_ERROR(WritePlot(options.plot, calibrator));
  if (!options.json) {
    Print(calibrator, side_car.path);
    return OkStatus();
  }
  Json::Array all;
  for (const auto& result : calibrator.results()) all.push_back(ResultJson(result));
  PrintJson(Json::Object{{"side_car", side_car.path},
                         {"rule", calibrator.best().first.name},
                         {"rules", std::move(all)}});
  return OkStatus();
}

}  // namespace thermocline::tools
