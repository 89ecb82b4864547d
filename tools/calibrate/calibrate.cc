// `thermocline calibrate`: fits, to a text, the sign predictor's threshold of each row, or the
// threshold of mode `threshold`, and checks them on held-out windows.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "engine/base/file.h"
#include "engine/base/index.h"
#include "engine/base/ratio.h"
#include "engine/charts/chart.h"
#include "engine/offline/row_thresholds.h"
#include "engine/predictor/down_norms.h"
#include "engine/predictor/predictors.h"
#include "tools/calibrate/act_histogram.h"
#include "tools/calibrate/calibrate_inputs.h"
#include "tools/calibrate/sign_scorer.h"
#include "tools/common/console.h"
#include "tools/common/eta_bar.h"
#include "tools/common/ffn_recorder.h"
#include "tools/common/model_options.h"
#include "tools/common/side_car_options.h"
#include "tools/common/text_windows.h"

namespace thermocline::tools {
namespace {

struct Options {
  ModelOptions model;
  TextOptions text;
  std::string side_car, plot, kind = "rows";
  double recall = 0.97, kept_mass = 0.95;
  int slices = 4, planes = 1, memory_mib = 1024;
  double columns = 0.75;
  bool by_mass = false, compare = false, json = false;
  InputOptions inputs;
};

// One layer's thresholds, and their quality on held-out text.
struct LayerResult {
  // The quality of the written thresholds, and that of one threshold for all rows.
  offline::ThresholdQuality rows, common;
  double alpha = 0;                       // for kind alpha
  offline::ThresholdQuality alpha_one;    // --compare: SparseInfer's rule at alpha 1
  offline::ThresholdQuality equal_bytes;  // --compare: row thresholds that predict as many neurons
};

// Turns |h| into |h| ||d|| for every neuron.
void WeighMasses(const std::vector<float>& norms, std::vector<float>& magnitudes) {
  for (std::size_t i = 0; i < magnitudes.size(); ++i) magnitudes[i] *= norms[i % norms.size()];
}

class Calibration {
 public:
  Calibration(const Options& options, const load::LoadedModel& model, SplitWindows windows,
              OpenSideCar side_car)
      : options_(options),
        model_(model),
        windows_(std::move(windows)),
        side_car_(std::move(side_car)) {}

  Status Run() {
    const int tokens = CountTokens(windows_.train) + CountTokens(windows_.held_out);
    const std::size_t at_once = LayersAtOnce(model_.config, tokens, kRecord,
                                             static_cast<std::size_t>(options_.memory_mib) << 20);
    std::vector<int> layers(model_.config.num_hidden_layers);
    std::iota(layers.begin(), layers.end(), 0);
    results_.resize(layers.size());
    for (std::size_t i = 0; i < layers.size(); i += at_once) {
      const auto pass = std::span(layers).subspan(i, std::min(at_once, layers.size() - i));
      RETURN_IF_ERROR(Pass(pass));
    }
    bar_.Clear();
    return side_car_.WriteAll();
  }

  const std::vector<LayerResult>& results() const { return results_; }
  const std::string& path() const { return side_car_.path; }

 private:
  static constexpr RecordOptions kRecord{.before_norm = false, .magnitudes = true};

  Status Pass(std::span<const int> layers) {
    const auto recording = [&](double) { Show("recording"); };
    ASSIGN_OR_RETURN(auto train, RecordLayers(model_, windows_.train, layers, kRecord, recording));
    ASSIGN_OR_RETURN(auto held_out,
                     RecordLayers(model_, windows_.held_out, layers, kRecord, recording));
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const Status status = Layer(layers[i], train[i], held_out[i]);
      if (!status.ok()) return status.Annotate(StrCat("layer ", layers[i]));
      train[i] = held_out[i] = {};
      ++done_;
      Show("fitting");
    }
    return OkStatus();
  }

  Status Layer(int layer, LayerRecording& train, LayerRecording& held_out) {
    predictor::LayerSideCar& out = side_car_.content.layers[layer];
    out.down_norms = predictor::DownNorms(model_.weights->layers[layer], *model_.pool);
    WeighMasses(out.down_norms, train.magnitudes);
    WeighMasses(out.down_norms, held_out.magnitudes);
    const bool alpha = options_.kind == "alpha";
    const SignScorer scorer(model_, layer,
                            alpha ? std::vector<std::int32_t>()
                                  : ChooseColumns(model_, layer, train, options_.columns));
    const int slices = alpha ? 1 : options_.slices, planes = alpha ? 1 : options_.planes;
    const auto train_scores = scorer.Scores(train, slices, planes),
               held_out_scores = scorer.Scores(held_out, slices, planes);
    const offline::RowSamples train_set{train_scores, &train.active, train.magnitudes},
        held_out_set{held_out_scores, &held_out.active, held_out.magnitudes};
    LayerResult& result = results_[layer];
    ASSIGN_OR_RETURN(auto fit,
                     offline::FitRowThresholds(train_set, held_out_set,
                                               {options_.recall, options_.by_mass}, *model_.pool));
    result.rows = fit.held_out;
    result.common = fit.common_held_out;
    if (alpha) {
      result.alpha = AlphaFor(fit.common, scorer.cols());
      result.rows = fit.common_held_out;
      out.alpha = result.alpha;
      out.sign.reset();
    } else {
      out.sign = predictor::SignCalibration{.slices = slices,
                                            .planes = planes,
                                            .columns = scorer.columns(),
                                            .thresholds = std::move(fit.thresholds),
                                            .recall = fit.held_out.recall,
                                            .predicted_share = fit.held_out.predicted_share,
                                            .active_share = fit.held_out.active_share,
                                            .missed_mass = fit.held_out.missed_mass};
    }
    if (options_.compare)
      RETURN_IF_ERROR(Compare(layer, train_set, held_out_set, held_out, result));
    return OkStatus();
  }

  // Compares SparseInfer's rule at alpha 1 with row thresholds that predict as many neurons.
  Status Compare(int layer, const offline::RowSamples& train, const offline::RowSamples& held_out,
                 const LayerRecording& recording, LayerResult& result) const {
    const SignScorer scorer(model_, layer, {});
    const auto signs = scorer.Scores(recording, 1, 1);
    const std::vector<std::int32_t> rule = {kernels::SignThreshold(1000, scorer.cols())};
    result.alpha_one = offline::MeasureThresholds({signs, held_out.active, held_out.masses}, rule);
    double low = 0.3, high = 0.99999;  // share of the mass to catch
    for (int i = 0; i < 12; ++i) {
      const double target = 1 - std::sqrt((1 - low) * (1 - high));
      ASSIGN_OR_RETURN(const auto fit,
                       offline::FitRowThresholds(train, held_out, {target, true}, *model_.pool));
      const bool fits = fit.held_out.predicted_share <= result.alpha_one.predicted_share;
      if (fits || i == 0) result.equal_bytes = fit.held_out;
      (fits ? low : high) = target;
    }
    return OkStatus();
  }

  // The smallest alpha, in thousandths, whose rule is at least as careful as `threshold`.
  static double AlphaFor(std::int32_t threshold, int cols) {
    int thousandths = 0;
    while (thousandths < 4000 && kernels::SignThreshold(thousandths, cols) > threshold)
      ++thousandths;
    return thousandths / 1000.0;
  }

  void Show(std::string_view what) { bar_.Show(base::Ratio(done_, results_.size()), what); }

  const Options& options_;
  const load::LoadedModel& model_;
  const SplitWindows windows_;
  OpenSideCar side_car_;
  std::vector<LayerResult> results_;
  int done_ = 0;
  EtaBar bar_;
};

Json QualityJson(const offline::ThresholdQuality& q) {
  return Json::Object{{"recall", q.recall},
                      {"predicted_share", q.predicted_share},
                      {"active_share", q.active_share},
                      {"missed_mass", q.missed_mass}};
}

Json ResultsJson(const Options& o, const std::vector<LayerResult>& results) {
  Json::Array layers;
  for (std::size_t l = 0; l < results.size(); ++l) {
    const LayerResult& r = results[l];
    Json layer = QualityJson(r.rows);
    layer.Set("layer", l);
    layer.Set("common", QualityJson(r.common));
    if (o.kind == "alpha") layer.Set("alpha", r.alpha);
    if (o.compare) {
      layer.Set("alpha_one", QualityJson(r.alpha_one));
      layer.Set("equal_bytes", QualityJson(r.equal_bytes));
    }
    layers.push_back(std::move(layer));
  }
  return layers;
}

void PrintResults(const Options& o, const std::vector<LayerResult>& results) {
  std::printf("layer   recall  predicts   active   missed mass%s%s\n",
              o.kind == "alpha" ? "   alpha" : "   one threshold: predicts",
              o.compare ? "   alpha 1: predicts  missed   rows at equal bytes" : "");
  for (std::size_t l = 0; l < results.size(); ++l) {
    const LayerResult& r = results[l];
    std::printf("%5zu   %5.1f%%    %5.1f%%   %5.1f%%       %6.2f%%", l, 100 * r.rows.recall,
                100 * r.rows.predicted_share, 100 * r.rows.active_share, 100 * r.rows.missed_mass);
    if (o.kind == "alpha") {
      std::printf("   %.3f", r.alpha);
    } else {
      std::printf("                    %5.1f%%", 100 * r.common.predicted_share);
    }
    if (o.compare) {
      std::printf("             %5.1f%%  %5.2f%%                %5.2f%%",
                  100 * r.alpha_one.predicted_share, 100 * r.alpha_one.missed_mass,
                  100 * r.equal_bytes.missed_mass);
    }
    std::printf("\n");
  }
}

Status WritePlot(const std::string& path, const Options& o,
                 const std::vector<LayerResult>& results) {
  using Kind = charts::Series::Kind;
  const auto colors = charts::Colors(3);
  charts::Series rows{.kind = Kind::kBars, .label = "predicted", .color = colors[0]},
      active{.kind = Kind::kBars, .label = "active", .color = colors[2]},
      missed{.kind = Kind::kBars, .label = "row thresholds", .color = colors[0]},
      alpha{.kind = Kind::kBars, .label = "alpha = 1, equal bytes", .color = colors[1]};
  for (int l = 0; l < base::IntSize(results); ++l) {
    const double x = l;
    rows.points.emplace_back(x, results[l].rows.predicted_share);
    active.points.emplace_back(x, results[l].rows.active_share);
    missed.points.emplace_back(
        x, o.compare ? results[l].equal_bytes.missed_mass : results[l].rows.missed_mass);
    alpha.points.emplace_back(x, results[l].alpha_one.missed_mass);
  }
  const charts::Axis axis{
      .label = "layer", .whole = true, .min = -0.5, .max = base::IntSize(results) - 0.5};
  charts::Chart shares{.title = "Neurons predicted and active, held-out text", .x = axis};
  shares.y = {.label = "share of neurons", .percent = true};
  shares.series = {rows, active};
  charts::Chart mass{.title = "Missed mass, held-out text", .x = axis};
  mass.y = {.label = "share of |h| ||d||", .percent = true};
  mass.series = {missed};
  if (o.compare) mass.series.push_back(alpha);
  ASSIGN_OR_RETURN(const auto file, base::FileWriter::Create(path));
  RETURN_IF_ERROR(file->Append(charts::RenderPicture(std::vector{shares, mass}, 2)));
  return file->Commit();
}

// Mode `threshold`: the largest t whose skipped neurons carry at most 1 - kept_mass of the mass.
Status CalibrateThreshold(const Options& o, const load::LoadedModel& model, SplitWindows windows,
                          OpenSideCar side_car) {
  ActHistogram train(model), held_out(model);
  RETURN_IF_ERROR(RunWindows(model, windows.train, train, {}, {}));
  RETURN_IF_ERROR(RunWindows(model, windows.held_out, held_out, {}, {}));
  Json::Array layers;
  if (!o.json) std::printf("layer   threshold   keeps mass   keeps neurons\n");
  for (int l = 0; l < model.config.num_hidden_layers; ++l) {
    const float threshold = train.ThresholdFor(l, o.kept_mass);
    const ActHistogram::Kept kept = held_out.KeptAt(l, threshold);
    auto& layer = side_car.content.layers[l];
    layer.threshold = threshold;
    layer.threshold_kept_mass = kept.mass;
    layers.push_back(Json::Object{{"layer", l},
                                  {"threshold", threshold},
                                  {"kept_mass", kept.mass},
                                  {"kept_share", kept.neurons}});
    if (!o.json)
      std::printf("%5d   %9.5f       %5.1f%%          %5.1f%%\n", l, static_cast<double>(threshold),
                  100 * kept.mass, 100 * kept.neurons);
  }
  RETURN_IF_ERROR(side_car.WriteAll());
  if (o.json) {
    PrintJson(Json::Object{{"side_car", side_car.path}, {"layers", std::move(layers)}});
  } else {
    std::printf("measured on held-out windows; the thresholds are in %s\n", side_car.path.c_str());
  }
  return OkStatus();
}

SideCarPart PartOf(const Options& o) {
  if (o.kind == "inputs") return SideCarPart::kInputs;
  return o.kind == "threshold" ? SideCarPart::kThreshold : SideCarPart::kSign;
}

Status Calibrate(const Options& o) {
  RETURN_IF_ERROR(CheckPlotPath(o.plot));
  ASSIGN_OR_RETURN(const auto model, LoadWithProgress(WithMode(o.model, FfnMode::kDense)));
  if (o.kind != "threshold" && o.kind != "inputs") RETURN_IF_ERROR(CheckTrueZeros(*model));
  RETURN_IF_ERROR(model::RequireNetworks(model->config, "calibrate").Annotate(model->path));
  ASSIGN_OR_RETURN(auto windows, ReadTextWindows(o.text, *model));
  ASSIGN_OR_RETURN(SplitWindows split, SplitHeldOut(o.text, std::move(windows)));
  ASSIGN_OR_RETURN(OpenSideCar side_car, OpenSideCarOf(*model, o.side_car, PartOf(o)));
  if (o.kind == "inputs") {
    InputOptions inputs = o.inputs;
    inputs.compare = o.compare;
    inputs.plot = o.plot;
    inputs.json = o.json;
    return CalibrateInputs(inputs, *model, std::move(split), std::move(side_car));
  }
  if (o.kind == "threshold")
    return CalibrateThreshold(o, *model, std::move(split), std::move(side_car));
  const int held_out_tokens = CountTokens(split.held_out), tokens = CountTokens(split.train);
  Calibration calibration(o, *model, std::move(split), std::move(side_car));
  RETURN_IF_ERROR(calibration.Run());
  if (!o.plot.empty()) RETURN_IF_ERROR(WritePlot(o.plot, o, calibration.results()));
  if (o.json) {
    PrintJson(Json::Object{{"side_car", calibration.path()},
                           {"train_tokens", tokens},
                           {"held_out_tokens", held_out_tokens},
                           {"layers", ResultsJson(o, calibration.results())}});
    return OkStatus();
  }
  PrintResults(o, calibration.results());
  std::printf("measured on %d held-out tokens, fitted on %d; the thresholds are in %s\n",
              held_out_tokens, tokens, calibration.path().c_str());
  return OkStatus();
}

}  // namespace

Command AddCalibrate(const OptionSet& set) {
  auto o = std::make_shared<Options>();
  AddModelOptions(set, o->model);
  AddTextOptions(set, o->text);
  AddSideCarOption(set, o->side_car);
  set.Add("--kind", TextValue{&o->kind, {"rows", "alpha", "threshold", "inputs"}},
          "rows: a threshold for each neuron's sign score. alpha: SparseInfer's alpha for "
          "each layer. threshold: mode threshold, |act(gate)| below which neurons are skipped. "
          "inputs: mode inputs, sizes below which inputs of all matrices are left out")
      .ShowDefault();
  set.Add("--recall", DoubleValue{&o->recall, 0.01, 1.0},
          "rows, alpha: share of the active neurons to predict")
      .ShowDefault();
  set.Add("--by-mass", o->by_mass, "rows, alpha: --recall counts |h| ||d||, not neurons");
  set.Add("--share", DoubleValue{&o->inputs.share, 0.01, 0.9},
          "inputs: share of the layers' weights to leave out, at most; smaller ones are measured, "
          "too")
      .ShowDefault();
  set.Add("--rule", TextValue{&o->inputs.rule, {"best", "size", "norm"}},
          "inputs: size, of the input alone; norm, times the norm of its weights; best: both are "
          "measured")
      .ShowDefault();
  set.Add("--budget", TextValue{&o->inputs.budget, {"best", "model", "layer"}},
          "inputs: what each matrix may leave out: model, by what it costs the model's output; "
          "layer, as much in every layer, and there by what it costs the layer's; best: both are "
          "measured")
      .ShowDefault();
  set.Add("--kept-mass", DoubleValue{&o->kept_mass, 0.01, 1.0},
          "threshold: share of |h| ||d|| to keep")
      .ShowDefault();
  set.Add("--slices", IntValue{&o->slices, 1, kernels::kSignSlicesMax},
          "rows: bits of the input that count")
      .ShowDefault();
  set.Add("--planes", IntValue{&o->planes, 1, 2}, "rows: bits of the weights that count")
      .ShowDefault();
  set.Add("--columns", DoubleValue{&o->columns, 0.05, 1.0},
          "rows: share of the weights' columns whose signs are kept, the weightiest, in "
          "steps of 512 columns")
      .ShowDefault();
  set.Add("--compare", o->compare,
          "Beside alpha = 1: its missed mass, and that of row thresholds for as many neurons");
  set.Add("--memory", IntValue{&o->memory_mib, 1, 1 << 20},
          "MiB for recordings; with less, the text is run again")
      .ShowDefault();
  set.Add("--plot", o->plot, "Write shares and missed mass to this SVG file");
  set.Add("--json", o->json, "One JSON object on standard output");
  return [o] { return Calibrate(*o); };
}

}  // namespace thermocline::tools
