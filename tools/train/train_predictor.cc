// `thermocline train-predictor`: trains a low-rank predictor for every layer, on a text.
#include <cmath>
#include <cstdio>

#include "engine/base/file.h"
#include "engine/base/hash.h"
#include "engine/base/index.h"
#include "engine/charts/chart.h"
#include "engine/offline/low_rank_trainer.h"
#include "tools/common/console.h"
#include "tools/common/eta_bar.h"
#include "tools/common/ffn_recorder.h"
#include "tools/common/model_options.h"
#include "tools/common/side_car_options.h"
#include "tools/common/text_windows.h"
#include "tools/train/held_out_loss.h"

namespace thermocline::tools {
namespace {

struct Options {
  ModelOptions model;
  TextOptions text;
  std::string side_car, plot, layers;
  double recall = 0.98, share_limit = 2;
  double perplexity_limit = 0;  // 0: only the recall counts
  int rank = 0, memory_mib = 1024;
  bool before_norm = false, restart = false, json = false;
};

// Parses "4", "4-9", or "" for all.
Result<std::vector<int>> ParseLayers(const std::string& text, int num_layers) {
  const std::size_t dash = std::min(text.find('-'), text.size());
  std::optional<int> first = 0, last = num_layers - 1;
  if (!text.empty()) {
    first = base::ParseNumber<int>(text.substr(0, dash));
    last = dash == text.size() ? first : base::ParseNumber<int>(text.substr(dash + 1));
  }
  if (!first.has_value() || !last.has_value() || *first < 0 || *first > *last ||
      *last >= num_layers) {
    return base::InvalidArgument("--layers ", text, ": expected a layer or a range a-b of 0 to ",
                                 num_layers - 1);
  }
  std::vector<int> layers;
  for (int i = *first; i <= *last; ++i) layers.push_back(i);
  return layers;
}

// A hash of all that a layer's predictor depends on; a layer trained with the same hash is kept.
Result<std::string> SettingsOf(const Options& o) {
  ASSIGN_OR_RETURN(const std::string text, base::ReadFileToString(o.text.text));
  base::Hasher hasher;
  hasher.Add(text);
  return StrCat("text ", hasher.Digest().Hex(), ", tokens ", o.text.tokens, ", window ",
                o.text.window, ", recall ", o.recall, ", rank ", o.rank, ", share limit ",
                o.share_limit,
                o.perplexity_limit > 0 ? StrCat(", perplexity limit ", o.perplexity_limit) : "",
                o.before_norm ? ", before the norm" : "",
                o.model.activation.has_value() ? ActivationName(*o.model.activation) : "");
}

// The result of limiting the perplexity.
struct Perplexity {
  double dense = 0, predicted = 0;
  int rounds = 0;  // rounds of retraining layers
  double increase() const { return predicted / dense - 1; }
};

class Training {
 public:
  Training(const Options& options, load::LoadedModel& model, SplitWindows windows,
           OpenSideCar side_car, std::string settings)
      : options_(options),
        model_(model),
        windows_(std::move(windows)),
        side_car_(std::move(side_car)),
        settings_(std::move(settings)),
        recall_(options.recall),
        record_{.before_norm = options.before_norm} {}

  Status Run(const std::vector<int>& layers) {
    for (const int layer : layers) {
      if (options_.restart || !IsTrained(layer)) todo_.push_back(layer);
    }
    kept_ = static_cast<int>(layers.size() - todo_.size());
    const int tokens = CountTokens(windows_.train) + CountTokens(windows_.held_out);
    const std::size_t at_once = LayersAtOnce(model_.config, tokens, record_,
                                             static_cast<std::size_t>(options_.memory_mib) << 20);
    for (std::size_t i = 0; i < todo_.size(); i += at_once) {
      const auto pass = std::span(todo_).subspan(i, std::min(at_once, todo_.size() - i));
      RETURN_IF_ERROR(Pass(pass));
    }
    bar_.Clear();
    return OkStatus();
  }

  // Retrains, with half the misses, the layer whose predictor alone costs the most, until all
  // together cost no more than the limit. Source: PowerInfer, section 7.
  Result<Perplexity> KeepPerplexity() {
    constexpr double kRecallMost = 0.9995;
    HeldOutLoss losses(model_, windows_.held_out);
    ASSIGN_OR_RETURN(const double dense, losses.Dense());
    std::vector<double> alone(model_.weights->layers.size(), -1);
    Perplexity out{.dense = std::exp(dense)};
    while (true) {
      ASSIGN_OR_RETURN(const double loss, losses.Predicted(side_car_.content));
      out.predicted = std::exp(loss);
      if (out.increase() <= options_.perplexity_limit) break;
      int worst = -1;
      for (int l = 0; l < base::IntSize(alone); ++l) {
        const auto& low_rank = side_car_.content.layers[l].low_rank;
        if (!low_rank.has_value() || low_rank->recall >= kRecallMost) continue;
        if (alone[l] < 0) {
          ASSIGN_OR_RETURN(const double of_layer, losses.Predicted(side_car_.content, l));
          alone[l] = std::max(0.0, of_layer - dense);
        }
        if (worst < 0 || alone[l] > alone[worst]) worst = l;
      }
      if (worst < 0) break;  // a higher recall would not help any more
      recall_ = std::min(kRecallMost, (1 + side_car_.content.layers[worst].low_rank->recall) / 2);
      alone[worst] = -1;
      ++out.rounds;
      todo_ = {worst};
      done_ = 0;
      RETURN_IF_ERROR(Pass(todo_));
    }
    bar_.Clear();
    return out;
  }

  const OpenSideCar& side_car() const { return side_car_; }
  int kept() const { return kept_; }

 private:
  bool IsTrained(int layer) const {
    const auto& low_rank = side_car_.content.layers[layer].low_rank;
    return low_rank.has_value() && low_rank->settings == settings_;
  }

  // Runs the text once and trains some layers on their recordings. Each is written when it is done.
  Status Pass(std::span<const int> layers) {
    const auto recording = [&](double) { Show("recording", 0); };
    ASSIGN_OR_RETURN(auto train, RecordLayers(model_, windows_.train, layers, record_, recording));
    ASSIGN_OR_RETURN(auto held_out,
                     RecordLayers(model_, windows_.held_out, layers, record_, recording));
    for (std::size_t i = 0; i < layers.size(); ++i) {
      auto trained = offline::TrainLowRank(DataOf(train[i]), DataOf(held_out[i]),
                                           TrainerOptions(layers[i]), *model_.pool);
      if (!trained.ok()) return trained.status().Annotate(StrCat("layer ", layers[i]));
      trained->settings = settings_;
      side_car_.content.layers[layers[i]].low_rank = *std::move(trained);
      RETURN_IF_ERROR(side_car_.Write(std::span(&layers[i], 1)));
      train[i] = held_out[i] = {};
      ++done_;
    }
    return OkStatus();
  }

  offline::TrainingData DataOf(const LayerRecording& r) const {
    return {.inputs = r.inputs, .labels = &r.active, .hidden_size = model_.config.hidden_size};
  }

  offline::TrainingOptions TrainerOptions(int layer) {
    offline::TrainingOptions options;
    options.recall = recall_;
    options.share_limit = options_.share_limit;
    options.rank = options_.rank;
    options.before_norm = options_.before_norm;
    options.on_progress = [this, layer](const offline::TrainingProgress& p) {
      char text[96];
      std::snprintf(text, sizeof(text), "layer %d, rank %d, epoch %d: predicts %.2f%%", layer,
                    p.rank, p.epoch, 100 * p.predicted_share);
      Show(text, p.share_done);
    };
    return options;
  }

  void Show(std::string_view what, double share_of_layer) {
    bar_.Show((done_ + share_of_layer) / base::IntSize(todo_), what);
  }

  const Options& options_;
  load::LoadedModel& model_;
  const SplitWindows windows_;
  OpenSideCar side_car_;
  const std::string settings_;
  double recall_;  // for the layers in training
  const RecordOptions record_;
  std::vector<int> todo_;
  int kept_ = 0, done_ = 0;
  EtaBar bar_;
};

void PrintTable(const predictor::SideCar& s, const std::vector<int>& layers) {
  std::printf("layer   rank   recall  predicts   active   ratio        bytes\n");
  for (const int layer : layers) {
    const auto& p = *s.layers[layer].low_rank;
    std::printf("%5d  %5d   %5.1f%%    %5.1f%%   %5.1f%%   %5.2f  %11s\n", layer, p.rank,
                100 * p.recall, 100 * p.predicted_share, 100 * p.active_share,
                p.predicted_share / p.active_share, base::HumanBytes(p.bytes()).c_str());
  }
}

Json LayersJson(const predictor::SideCar& s, const std::vector<int>& layers) {
  Json::Array out;
  for (const int layer : layers) {
    const auto& p = *s.layers[layer].low_rank;
    out.push_back(Json::Object{{"layer", layer},
                               {"rank", p.rank},
                               {"threshold", p.threshold},
                               {"recall", p.recall},
                               {"predicted_share", p.predicted_share},
                               {"active_share", p.active_share},
                               {"bytes", p.bytes()}});
  }
  return out;
}

Status WritePlot(const std::string& path, const predictor::SideCar& s,
                 const std::vector<int>& layers) {
  using Kind = charts::Series::Kind;
  const auto colors = charts::Colors(3);
  charts::Series predicted{.kind = Kind::kBars, .label = "predicted", .color = colors[0]};
  charts::Series active{.kind = Kind::kBars, .label = "active", .color = colors[2]};
  charts::Series rank{.kind = Kind::kBars, .label = "", .color = colors[0]};
  for (const int layer : layers) {
    const auto& p = *s.layers[layer].low_rank;
    predicted.points.emplace_back(layer, p.predicted_share);
    active.points.emplace_back(layer, p.active_share);
    rank.points.emplace_back(layer, p.rank);
  }
  const charts::Axis layer_axis{
      .label = "layer", .whole = true, .min = layers.front() - 0.5, .max = layers.back() + 0.5};
  charts::Chart shares{.title = "Neurons predicted and active, held-out text", .x = layer_axis};
  shares.y = {.label = "share of neurons", .percent = true};
  shares.series = {predicted, active};
  charts::Chart ranks{.title = "Rank of the predictor", .x = layer_axis};
  ranks.y = {.label = "rank"};
  ranks.series = {rank};
  ASSIGN_OR_RETURN(const auto file, base::FileWriter::Create(path));
  RETURN_IF_ERROR(file->Append(charts::RenderPicture(std::vector{shares, ranks}, 2)));
  return file->Commit();
}

Status Train(const Options& o) {
  RETURN_IF_ERROR(CheckPlotPath(o.plot));
  ASSIGN_OR_RETURN(const auto model, LoadWithProgress(WithMode(o.model, FfnMode::kDense)));
  RETURN_IF_ERROR(CheckTrueZeros(*model));
  if (o.perplexity_limit > 0 && model->memory.tier == load::MemoryPlan::Tier::kLayers)
    return base::FailedPrecondition(
        "--perplexity-limit: whole layers come from flash, where nothing is predicted; give the "
        "model more memory");
  ASSIGN_OR_RETURN(const auto layers, ParseLayers(o.layers, model->config.num_hidden_layers));
  ASSIGN_OR_RETURN(auto windows, ReadTextWindows(o.text, *model));
  ASSIGN_OR_RETURN(SplitWindows split, SplitHeldOut(o.text, std::move(windows)));
  ASSIGN_OR_RETURN(OpenSideCar side_car, OpenSideCarOf(*model, o.side_car, SideCarPart::kLowRank));
  ASSIGN_OR_RETURN(std::string settings, SettingsOf(o));
  const int train_tokens = CountTokens(split.train), held_out_tokens = CountTokens(split.held_out);
  Training training(o, *model, std::move(split), std::move(side_car), std::move(settings));
  RETURN_IF_ERROR(training.Run(layers));
  std::optional<Perplexity> perplexity;
  if (o.perplexity_limit > 0) {
    ASSIGN_OR_RETURN(perplexity, training.KeepPerplexity());
  }
  const OpenSideCar& done = training.side_car();
  if (!o.plot.empty()) RETURN_IF_ERROR(WritePlot(o.plot, done.content, layers));
  if (o.json) {
    Json out{Json::Object{{"side_car", done.path},
                          {"train_tokens", train_tokens},
                          {"held_out_tokens", held_out_tokens},
                          {"kept_layers", training.kept()},
                          {"layers", LayersJson(done.content, layers)}}};
    if (perplexity.has_value())
      out.Set("perplexity", Json::Object{{"dense", perplexity->dense},
                                         {"predicted", perplexity->predicted},
                                         {"increase", perplexity->increase()},
                                         {"rounds", perplexity->rounds}});
    PrintJson(out);
    return OkStatus();
  }
  PrintTable(done.content, layers);
  std::printf("measured on %d held-out tokens, trained on %d; the predictors are in %s\n",
              held_out_tokens, train_tokens, done.path.c_str());
  if (perplexity.has_value())
    std::printf("held-out perplexity %.4f without predictors, %.4f with them (%+.3f%%%s)\n",
                perplexity->dense, perplexity->predicted, 100 * perplexity->increase(),
                perplexity->increase() > o.perplexity_limit
                    ? ", above the limit: no layer's recall can be raised further"
                    : "");
  if (training.kept() > 0)
    std::printf("%d layers were trained before with the same settings; --restart trains anew\n",
                training.kept());
  return OkStatus();
}

}  // namespace

Command AddTrainPredictor(const OptionSet& set) {
  auto o = std::make_shared<Options>();
  AddModelOptions(set, o->model);
  AddTextOptions(set, o->text);
  AddSideCarOption(set, o->side_car);
  set.Add("--recall", DoubleValue{&o->recall, 0.01, 1.0}, "Share of the active neurons to predict")
      .ShowDefault();
  set.Add("--rank", IntValue{&o->rank, 0, 1 << 16},
          "Rank of every layer; 0 = as small as the share limit allows")
      .ShowDefault();
  set.Add("--share-limit", DoubleValue{&o->share_limit, 1.0, 100.0},
          "Predicted over active neurons that a rank has to reach")
      .ShowDefault();
  const OptionRef limit =
      set.Add("--perplexity-limit", DoubleValue{&o->perplexity_limit, 0, 1},
              "Raise the layers' recall until held-out perplexity grows by no more than this share "
              "(PowerInfer: 0.001); 0 = recall alone decides");
  const OptionRef some =
      set.Add("--layers", o->layers, "A layer, or a range a-b; all if not given");
  limit.Excludes(some);
  set.Add("--before-norm", o->before_norm,
          "Predict from the residual, before the norm: earlier, and harder");
  set.Add("--memory", IntValue{&o->memory_mib, 1, 1 << 20},
          "MiB for recordings; with less, the text is run again")
      .ShowDefault();
  set.Add("--restart", o->restart, "Train layers anew that are trained already");
  set.Add("--plot", o->plot, "Write shares and ranks to this SVG file");
  set.Add("--json", o->json, "One JSON object on standard output");
  return [o] { return Train(*o); };
}

}  // namespace thermocline::tools
