#include "tools/calibrate/calibrate_inputs.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <random>

#include "engine/base/file.h"
#include "engine/base/index.h"
#include "engine/base/ratio.h"
#include "engine/charts/chart.h"
#include "engine/model/open/open_model.h"
#include "tools/calibrate/input_budget.h"
#include "tools/common/console.h"
#include "tools/common/eta_bar.h"
#include "tools/common/ffn_recorder.h"

namespace thermocline::tools {
namespace {

using model::InputKind;
using model::kInputKinds;

constexpr double kRecommended = 0.05;  // nats of KL

struct Method {
  std::string name;
  InputSize size;
  BudgetKind budget;
  bool random = false;  // skips random inputs, the same ones for every token

  bool measured() const { return budget != BudgetKind::kEqual; }
};
// Methods whose shares come from measurements may be selected; the others are for comparison.
const Method kMethods[] = {{"norm, by model", InputSize::kByNorm, BudgetKind::kModel},
                           {"size, by model", InputSize::kOwn, BudgetKind::kModel},
                           {"norm, by layer", InputSize::kByNorm, BudgetKind::kBlock},
                           {"size, by layer", InputSize::kOwn, BudgetKind::kBlock},
                           {"norm, equal shares", InputSize::kByNorm, BudgetKind::kEqual},
                           {"size, equal shares", InputSize::kOwn, BudgetKind::kEqual},
                           {"random", InputSize::kOwn, BudgetKind::kEqual, true}};

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
    // The costs of matrices are measured without the copies, whose rounding would hide them. The
    // written losses are measured with the copies, as decoding uses them.
    trials_.emplace(model_, LongestWindow());
    for (const Method& method : kMethods) {
      if (Asked(method) || compare) RETURN_IF_ERROR(ChooseRules(method));
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
  // The method with the least divergence at the requested share.
  const std::pair<Method, std::vector<Point>>& best() const {
    const auto* best = &*std::find_if(results_.begin(), results_.end(),
                                      [&](const auto& r) { return Asked(r.first); });
    for (const auto& result : results_) {
      if (Asked(result.first) && result.second.back().score.kl < best->second.back().score.kl)
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

  // True if the options allow to write the method's points.
  bool Asked(const Method& m) const {
    const bool size =
        options_.rule == "best" || options_.rule == (m.size == InputSize::kOwn ? "size" : "norm");
    const bool budget = options_.budget == "best" ||
                        options_.budget == (m.budget == BudgetKind::kModel ? "model" : "layer");
    return m.measured() && size && budget;
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

  // Skips the same inputs for every token.
  InputRuleSet RandomRules(double share) const {
    InputRuleSet rules(layers_);
    std::mt19937 random(1);
    for (std::size_t l = 0; l < layers_; ++l) {
      for (int k = 0; k < kInputKinds; ++k) {
        auto& rule = rules[l].of[k];
        rule.thresholds = {1e-20F};
        rule.weights.resize(model::InputsOf(model_.weights->layers[l], static_cast<InputKind>(k)));
        for (float& weight : rule.weights)
          weight = std::uniform_real_distribution<>()(random) < share ? 0.0F : 1e20F;
      }
    }
    return rules;
  }

  // Chooses the rules for a method's points.
  Status ChooseRules(const Method& method) {
    std::vector<InputRuleSet> sets;
    if (method.random) {
      for (const double share : shares_) sets.push_back(RandomRules(share));
    } else {
      const InputProfile& profile = ProfileOf(method.size);
      InputBudget budget(model_, profile, windows_.train, *trials_);
      ASSIGN_OR_RETURN(const auto given, budget.For(method.budget, shares_, [&](double done) {
        bar_.Show(done, "each matrix alone, by " + method.name);
      }));
      for (const InputShares& shares : given) sets.push_back(RulesOf(profile, shares));
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
    const std::size_t at = &best() - results_.data();
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
  std::vector<std::vector<InputRuleSet>> rules_;  // for the points of results_
  EtaBar bar_;
};

Status WritePlot(const std::string& path, const InputCalibrator& calibrator) {
  charts::Chart kl{.title = "Divergence from the whole model, held-out text"},
      perplexity{.title = "Perplexity, held-out text"};
  kl.x = perplexity.x = {.label = "share of the layers' weights that is not read", .percent = true};
  kl.y = {.label = "KL, nats a token"};
  perplexity.y = {.label = "ratio to the whole model's"};
  const auto colors = charts::Colors(base::IntSize(calibrator.results()));
  for (std::size_t i = 0; i < calibrator.results().size(); ++i) {
    const auto& [method, points] = calibrator.results()[i];
    charts::Series of_kl{.label = method.name, .color = colors[i]}, of_perplexity = of_kl;
    for (const Point& p : points) {
      of_kl.points.emplace_back(p.share, p.score.kl);
      of_perplexity.points.emplace_back(p.share, p.score.perplexity_ratio);
    }
    kl.series.push_back(of_kl);
    perplexity.series.push_back(of_perplexity);
  }
  ASSIGN_OR_RETURN(const auto file, base::FileWriter::Create(path));
  RETURN_IF_ERROR(file->Append(charts::RenderPicture(std::vector{kl, perplexity}, 2)));
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
