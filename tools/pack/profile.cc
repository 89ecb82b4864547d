// `thermocline profile`: counts how often a text activates each neuron, for placement and
// prediction.
#include <cmath>
#include <cstdio>
#include <optional>

#include "engine/base/file.h"
#include "engine/base/index.h"
#include "engine/charts/chart.h"
#include "engine/offline/activation_stats.h"
#include "engine/predictor/down_norms.h"
#include "engine/store/trace.h"
#include "tools/common/console.h"
#include "tools/common/eta_bar.h"
#include "tools/common/ffn_recorder.h"
#include "tools/common/model_options.h"
#include "tools/common/side_car_options.h"
#include "tools/common/text_windows.h"
#include "tools/pack/active_source.h"
#include "tools/pack/expert_map.h"

namespace thermocline::tools {
namespace {

using offline::ActivationCounter;
using offline::kUnionWindows;

constexpr double kHot = 0.8;  // share of the activations, PowerInfer's measure

struct ProfileOptions {
  ModelOptions model;
  TextOptions text;
  std::string plot, side_car, trace, from_trace;
  bool json = false;
};

// Counts every layer's neurons.
class CountingTap final : public ffn::FfnTap {
 public:
  explicit CountingTap(const model::ModelConfig& config)
      : neurons_(config.units_per_layer()),
        of_experts_(config.experts.any()),
        layers_(config.num_hidden_layers, ActivationCounter(config.units_per_layer())) {}

  void BeginWindow() {
    for (ActivationCounter& layer : layers_) layer.BeginSequence();
  }
  // Also writes a trace.
  void SetTrace(ffn::FfnTap* trace) { trace_ = trace; }
  void OnLayer(const ffn::FfnSample& s) override {
    if (trace_ != nullptr) trace_->OnLayer(s);
    const std::vector<float> none(of_experts_ ? neurons_ : 0);  // for a mixture's dense layers
    for (int t = 0; t < s.tokens; ++t)
      layers_[s.layer].Add(of_experts_ ? std::span<const float>(none)
                                       : std::span(s.neurons + t * neurons_, neurons_));
  }
  void OnExperts(int layer, std::span<const ffn::ChosenExpert> chosen, int tokens) override {
    if (trace_ != nullptr) trace_->OnExperts(layer, chosen, tokens);
    const std::size_t k = chosen.size() / tokens;
    std::vector<float> active(neurons_);
    for (std::size_t at = 0; at < chosen.size(); at += k) {
      for (const ffn::ChosenExpert& each : chosen.subspan(at, k)) active[each.expert] = 1;
      layers_[layer].Add(active);
      for (const ffn::ChosenExpert& each : chosen.subspan(at, k)) active[each.expert] = 0;
    }
  }
  // Adds the neurons of every token of a trace, which is one sequence.
  void AddTrace(const store::Trace& trace) {
    std::vector<float> active(neurons_);
    for (std::int64_t token = 0; token < trace.tokens; ++token) {
      for (int l = 0; l < base::IntSize(layers_); ++l) {
        const auto set = trace.Set(token, l);
        for (const std::uint32_t id : set) active[id] = 1;
        layers_[l].Add(active);
        for (const std::uint32_t id : set) active[id] = 0;
      }
    }
  }
  const std::vector<ActivationCounter>& layers() const { return layers_; }

 private:
  std::size_t neurons_;  // or experts
  const bool of_experts_;
  std::vector<ActivationCounter> layers_;
  ffn::FfnTap* trace_ = nullptr;
};

Json LayerJson(int layer, const ActivationCounter& c) {
  const offline::ZipfFit zipf = offline::FitZipf(c.counts(), c.tokens());
  Json unions{Json::Object()};
  for (std::size_t i = 0; i < kUnionWindows.size(); ++i)
    unions.Set(StrCat(kUnionWindows[i]), c.union_share(i));
  Json::Array histogram;
  for (const auto& bin : offline::FrequencyHistogram(c.counts(), c.tokens()))
    histogram.push_back(Json::Object{{"upper", bin.upper}, {"neurons", bin.neurons}});
  return Json::Object{{"layer", layer},
                      {"active_share", c.active_share()},
                      {"overlap", c.overlap()},
                      {"union_share", std::move(unions)},
                      {"zipf_exponent", zipf.exponent},
                      {"zipf_r_squared", zipf.r_squared},
                      {"hot_share", offline::HotShare(c.counts(), kHot)},
                      {"histogram", std::move(histogram)}};
}

void PrintTable(const char* what, const std::vector<ActivationCounter>& layers) {
  std::printf("layer  active   kept  hot 80%%   zipf   never    union of");
  for (const int window : kUnionWindows) std::printf(" %6d", window);
  std::printf("\n");
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const ActivationCounter& c = layers[i];
    const int never = offline::FrequencyHistogram(c.counts(), c.tokens()).front().neurons;
    std::printf("%5zu  %5.1f%%  %4.0f%%   %5.1f%%  %5.2f  %5.1f%%            ", i,
                100 * c.active_share(), 100 * c.overlap(),
                100 * offline::HotShare(c.counts(), kHot),
                offline::FitZipf(c.counts(), c.tokens()).exponent,
                100.0 * never / base::IntSize(c.counts()));
    for (std::size_t w = 0; w < kUnionWindows.size(); ++w)
      std::printf(" %5.1f%%", 100 * c.union_share(w));
    std::printf("\n");
  }
  std::printf(
      "active: mean share of %s active for a token; kept: of these, active at the token "
      "before too\nhot 80%%: share of %s that makes 80%% of the activations; zipf: exponent "
      "of "
      "frequency over rank\n",
      what, what);
}

// At most 200 of a layer's frequencies, evenly spaced over the logarithm of the rank.
charts::Series FrequencyOverRank(const ActivationCounter& c) {
  std::vector<std::uint32_t> counts = c.counts();
  std::sort(counts.begin(), counts.end(), std::greater<>());
  charts::Series series;
  std::size_t last = 0;
  for (int i = 0; i < 200; ++i) {
    const double rank = std::pow(base::IntSize(counts), i / 200.0);
    const auto r = static_cast<std::size_t>(rank);
    if (r == last) continue;
    last = r;
    series.points.emplace_back(rank, counts[r - 1] / static_cast<double>(c.tokens()));
  }
  return series;
}

Status WritePlot(const std::string& path, bool experts,
                 const std::vector<ActivationCounter>& layers) {
  const std::string what = experts ? "experts" : "neurons";
  charts::Chart rank{.title = "How often " + what + " are active",
                     .x = {.label = what + ", by frequency", .log = true},
                     .y = {.label = "share of tokens", .log = true, .percent = true, .max = 1}};
  charts::Chart growth{
      .title = StrCat(experts ? "Experts" : "Neurons", " active for any of some tokens in a row"),
      .x = {.label = "tokens in a row", .whole = true, .min = 0, .max = kUnionWindows.back()},
      .y = {.label = "share of " + what, .percent = true, .min = 0}};
  const auto colors = charts::Colors(base::IntSize(layers));
  const std::size_t every = (layers.size() + 7) / 8;  // a legend has room for eight labels
  for (std::size_t i = 0; i < layers.size(); ++i) {
    charts::Series frequency = FrequencyOverRank(layers[i]);
    charts::Series unions{.points = {{1, layers[i].active_share()}}};
    for (std::size_t w = 0; w < kUnionWindows.size(); ++w)
      unions.points.emplace_back(kUnionWindows[w], layers[i].union_share(w));
    for (charts::Series* series : {&frequency, &unions}) {
      if (i % every == 0) series->label = StrCat("layer ", i);
      series->color = colors[i];
    }
    rank.series.push_back(std::move(frequency));
    growth.series.push_back(std::move(unions));
  }
  ASSIGN_OR_RETURN(const auto file, base::FileWriter::Create(path));
  const std::string curves = charts::RenderPicture(std::vector{rank, growth}, 2);
  RETURN_IF_ERROR(file->Append(experts ? WithExpertMap(curves, layers) : curves));
  return file->Commit();
}

// The number of counted tokens and windows.
struct Counted {
  std::int64_t tokens = 0;
  std::size_t windows = 1;
};

Result<Counted> CountTrace(const std::string& path, const OpenSideCar& side_car, CountingTap& tap) {
  ASSIGN_OR_RETURN(const store::Trace trace, store::ReadTrace(path));
  if (trace.num_hidden_layers != side_car.identity.num_hidden_layers ||
      trace.intermediate_size != side_car.identity.intermediate_size ||
      (!trace.model_hash.empty() && trace.model_hash != side_car.identity.model_hash))
    return base::FailedPrecondition(path, ": the trace is of another model");
  if (trace.tokens == 0) return base::InvalidArgument(path, ": the trace holds no whole token");
  tap.AddTrace(trace);
  return Counted{.tokens = trace.tokens};
}

Status Profile(const ProfileOptions& o) {
  RETURN_IF_ERROR(CheckPlotPath(o.plot));
  if (o.text.text.empty() == o.from_trace.empty())
    return base::InvalidArgument("give --text FILE, or --from-trace FILE of what was decoded");
  if (!o.from_trace.empty() && !o.trace.empty())
    return base::InvalidArgument("--record-trace writes what a text uses; --from-trace has that");
  ASSIGN_OR_RETURN(const auto model, LoadWithProgress(WithMode(o.model, FfnMode::kDense)));
  const bool experts = model->config.experts.any();
  if (!experts) RETURN_IF_ERROR(CheckTrueZeros(*model));
  std::vector<Window> windows;
  if (o.from_trace.empty()) {
    ASSIGN_OR_RETURN(windows, ReadTextWindows(o.text, *model));
  }
  ASSIGN_OR_RETURN(OpenSideCar side_car, OpenSideCarOf(*model, o.side_car, SideCarPart::kProfile));
  CountingTap tap(model->config);
  std::unique_ptr<store::TraceWriter> trace;
  std::optional<TraceTap> trace_tap;
  if (!o.trace.empty()) {
    ASSIGN_OR_RETURN(trace, store::TraceWriter::Create(
                                o.trace, {.num_hidden_layers = model->config.num_hidden_layers,
                                          .intermediate_size = model->config.units_per_layer(),
                                          .model_hash = side_car.identity.model_hash}));
    tap.SetTrace(&trace_tap.emplace(model->config, *trace));
  }
  Counted counted{CountTokens(windows), windows.size()};
  if (!o.from_trace.empty()) {
    ASSIGN_OR_RETURN(counted, CountTrace(o.from_trace, side_car, tap));
  } else {
    EtaBar bar;
    RETURN_IF_ERROR(RunWindows(
        *model, windows, tap, [&] { tap.BeginWindow(); },
        [&](double share) { bar.Show(share, "profiling"); }));
    bar.Clear();
  }
  if (trace != nullptr) RETURN_IF_ERROR(trace->Commit());
  side_car.content.profiled_tokens = counted.tokens;
  for (std::size_t i = 0; i < tap.layers().size(); ++i) {
    side_car.content.layers[i].activations = tap.layers()[i].counts();
    if (!experts)
      side_car.content.layers[i].down_norms =
          predictor::DownNorms(model->weights->layers[i], *model->pool);
  }
  RETURN_IF_ERROR(side_car.WriteAll());
  if (!o.plot.empty()) RETURN_IF_ERROR(WritePlot(o.plot, experts, tap.layers()));
  if (o.json) {
    Json::Array layers;
    for (int i = 0; i < base::IntSize(tap.layers()); ++i)
      layers.push_back(LayerJson(i, tap.layers()[i]));
    PrintJson(Json::Object{{"side_car", side_car.path},
                           {"tokens", counted.tokens},
                           {"windows", counted.windows},
                           {"layers", std::move(layers)}});
    return OkStatus();
  }
  PrintTable(experts ? "experts" : "neurons", tap.layers());
  std::printf("%lld tokens in %zu windows; counts%s are in %s\n",
              static_cast<long long>(counted.tokens), counted.windows, experts ? "" : " and norms",
              side_car.path.c_str());
  return OkStatus();
}

}  // namespace

Command AddProfile(const OptionSet& set) {
  auto o = std::make_shared<ProfileOptions>();
  AddModelOptions(set, o->model);
  AddTextOptions(set, o->text, false);
  set.Add("--from-trace", o->from_trace,
          "Count what this trace holds instead (--record-trace of `run`, mode exact, or the "
          "daemon's memory.record_trace): the use as it is");
  AddSideCarOption(set, o->side_car);
  set.Add("--record-trace", o->trace,
          "Write the neurons of every token to this file, for `plan --replay` and `pack`");
  set.Add("--plot", o->plot, "Write the curves to this SVG file");
  set.Add("--json", o->json, "One JSON object on standard output");
  return [o] { return Profile(*o); };
}

}  // namespace thermocline::tools
