// `thermocline bench`: prefill and decode speed, beside the read bandwidth of the same cores in the
// same run.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "engine/base/file.h"
#include "engine/base/system_memory.h"
#include "engine/exec/mode_tuner.h"
#include "engine/tools/bandwidth_probe.h"
#include "engine/tools/console.h"
#include "engine/tools/flash_bench.h"
#include "engine/tools/flash_run.h"
#include "engine/tools/hot_report.h"
#include "engine/tools/model_options.h"
#include "engine/tools/samples.h"
#include "engine/tools/spec_bench.h"

namespace thermocline::tools {
namespace {

using Clock = std::chrono::steady_clock;
using Logits = exec::Transformer::Logits;

constexpr int kChunk = 128;                     // tokens of one prefill step
constexpr int kDecode = 32, kSpecDecode = 128;  // tokens to decode, if not given

struct Options {
  ModelOptions model;
  std::string compare, modes;
  int prefill = 128, decode = 0, depth = 0, repetitions = 5;  // decode: 0 = not given
  std::string plot;
  bool json = false, flash = false;
  SpecBenchOptions spec;
};

double Seconds(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// One line of the report. A phase without tokens/s is a part of decoding, known by its bytes and
// time alone.
struct Phase {
  std::string name;
  int tokens = 0;
  double bytes_per_token = 0;
  Samples tokens_per_s;
  double bandwidth_share = 0;  // of the read bandwidth measured in the same repetition, median
};

// Tokens that a measurement decodes one after the other, and those before them.
int ContextOf(const Options& o, std::size_t modes) {
  const int decodes = 2 + 2 * static_cast<int>(modes);
  return std::max(o.prefill, o.depth) + decodes * o.decode + 1;
}

// Interleaves the measurements, so that a noisy neighbour hits all alike.
class Measurement {
 public:
  Measurement(const Options& options, exec::LoadedModel& model)
      : options_(options), model_(model) {}

  Status Prepare() {
    if (options_.depth > 0 && options_.depth < options_.prefill)
      return base::InvalidArgument("--depth ", options_.depth, " must not be below --prefill ",
                                   options_.prefill);
    ASSIGN_OR_RETURN(const std::vector<FfnMode> modes, ParseFfnModeList(options_.modes));
    if (streams() && (!modes.empty() || options_.depth > 0)) {
      return base::InvalidArgument(
          "--ffn-modes and --depth measure what is in memory, and part of this model comes from "
          "flash; give one mode with --ffn-mode");
    }
    for (const FfnMode mode : modes) modes_.push_back({.mode = mode});
    const int context = ContextOf(options_, modes.size());
    if (context > model_.config.max_position_embeddings) {
      return base::OutOfRange("--prefill or --depth, and --decode for each measurement, need ",
                              context, " tokens, the model's context has ",
                              model_.config.max_position_embeddings);
    }
    const base::HugeBuffer& weights = model_.weights->memory;
    ASSIGN_OR_RETURN(probe_, BandwidthProbe::Create({weights.data(), weights.size()}));
    transformer_ = model_.MakeTransformer(std::min(options_.prefill, kChunk), context);
    ASSIGN_OR_RETURN(cache_, model_.MakeCache(context));
    for (int i = 0; i < options_.prefill; ++i)
      prompt_.push_back((i * 7919 + 13) % model_.config.vocab_size);
    return OkStatus();
  }

  Status Run() {
    for (int r = -1; r < options_.repetitions; ++r) {  // the first run warms up
      const double bandwidth = probe_.MeasureGbPerS(*model_.pool);
      cache_->Clear();
      const double prefill_s = Prefill();
      if (streams()) {
        RETURN_IF_ERROR(RunFromFlash(r >= 0, bandwidth, prefill_s));
        continue;
      }
      if (options_.depth > 0) FillTo(options_.depth);
      const double before = ffn_bytes();
      const double decode_s = Decode(Logits::kLast);
      const double read = (ffn_bytes() - before) / options_.decode;
      const double headless_s = Decode(Logits::kNone);
      RunModes(r >= 0);
      double shallow_s = 0;
      if (options_.depth > 0) {
        cache_->Clear();
        FillTo(1);
        shallow_s = Decode(Logits::kNone);
      }
      if (r < 0) continue;
      bandwidth_.values.push_back(bandwidth);
      prefill_.values.push_back(prefill_s / options_.prefill);
      decode_.values.push_back(decode_s / options_.decode);
      ffn_bytes_per_token_ = read;
      head_.values.push_back(std::max(1e-9, (decode_s - headless_s) / options_.decode));
      attention_.values.push_back(std::max(1e-9, (headless_s - shallow_s) / options_.decode));
    }
    return OkStatus();
  }
  // Whether part of the weights comes from flash.
  bool streams() const { return model_.memory.tier != exec::MemoryPlan::Tier::kMemory; }
  const FlashRun& flash() const { return flash_; }
  HotStats hot() const { return model_.hot_stats(*transformer_); }
  // Every token decoded from now on; the others of a measurement too.
  void SetTrace(store::TraceWriter* trace) { transformer_->ffn().SetTrace(trace); }

  // Requires: Run.
  std::vector<Phase> Phases() const {
    const double bytes = static_cast<double>(model_.weights->bytes_per_token());
    const double rest =
        bytes - DenseFfnBytes() + KvBytes(std::max(options_.prefill, options_.depth));
    const double head = static_cast<double>(model_.weights->output.weight.bytes());
    const double chunk = std::min(options_.prefill, kChunk);
    std::vector<Phase> phases = {
        MakePhase("prefill", options_.prefill, bytes / chunk, prefill_),
        MakePhase("decode", options_.decode, rest + ffn_bytes_per_token_, decode_)};
    // Differences of two measurements: where they drown in noise there is nothing to say.
    if (!head_.values.empty() && head_.min() > 1e-9)
      phases.push_back(MakePhase("head", options_.decode, head, head_));
    if (options_.depth > 0 && attention_.min() > 1e-9) {
      phases.push_back(
          MakePhase("attention", options_.decode, KvBytes(options_.depth), attention_));
    }
    for (const ModeRun& run : modes_) {
      phases.push_back(MakePhase(StrCat("decode ", FfnModeName(run.mode)).c_str(), options_.decode,
                                 rest + run.ffn_bytes.median(), run.seconds));
      phases.push_back(MakePhase(StrCat("layers ", FfnModeName(run.mode)).c_str(), options_.decode,
                                 rest - head + run.ffn_bytes.median(), run.layers));
      phases.push_back(MakePhase(StrCat("ffn ", FfnModeName(run.mode)).c_str(), 1,
                                 run.ffn_bytes.median(), run.ffn));
      if (run.predictor.values.empty()) continue;
      phases.push_back(MakePhase(StrCat("predict ", FfnModeName(run.mode)).c_str(), 1,
                                 run.predictor_bytes, run.predictor));
    }
    return phases;
  }
  const Samples& bandwidth() const { return bandwidth_; }
  const char* bandwidth_of() const { return probe_.reads_weights() ? "the weights" : "1 GiB"; }

 private:
  struct ModeRun {
    FfnMode mode;
    Samples seconds = {};    // per token
    Samples layers = {};     // per token, without the head
    Samples ffn = {};        // all layers' feed-forward networks of one token
    Samples predictor = {};  // their predictors alone
    Samples ffn_bytes = {};  // per token
    double predictor_bytes = 0;
  };

  // Decodes further tokens of one text, and what flash had to do with it.
  Status RunFromFlash(bool keep, double bandwidth, double prefill_s) {
    RETURN_IF_ERROR(transformer_->status());
    const FlashCounters before = model_.flash_counters();
    const double bytes = ffn_bytes();
    const double decode_s = Decode(Logits::kLast);
    RETURN_IF_ERROR(transformer_->status());
    if (!keep) return OkStatus();
    bandwidth_.values.push_back(bandwidth);
    prefill_.values.push_back(prefill_s / options_.prefill);
    decode_.values.push_back(decode_s / options_.decode);
    ffn_bytes_per_token_ = (ffn_bytes() - bytes) / options_.decode;
    flash_.Add(before, model_.flash_counters(), decode_s, options_.decode);
    return OkStatus();
  }

  // Decodes in each mode, every layer in the layout the mode likes best.
  void RunModes(bool keep) {
    for (ModeRun& run : modes_) {
      const std::vector<FfnMode> all(model_.ffn_modes.size(), run.mode);
      for (std::size_t l = 0; l < all.size(); ++l) exec::UseLayoutsOf(run.mode, l, model_);
      model_.SetModes(*transformer_, all);
      const double before = ffn_bytes();
      const double seconds = Decode(Logits::kLast);
      const double bytes = ffn_bytes() - before;
      const double layers = Decode(Logits::kNone);
      if (!keep) continue;
      run.layers.values.push_back(layers / options_.decode);
      ProbeNetworks(run);
      run.seconds.values.push_back(seconds / options_.decode);
      run.ffn_bytes.values.push_back(bytes / options_.decode);
    }
    if (modes_.empty()) return;
    for (std::size_t l = 0; l < model_.ffn_modes.size(); ++l)
      exec::UseLayoutsOf(model_.ffn_modes[l], l, model_);
    model_.SetModes(*transformer_, model_.ffn_modes);
  }

  // The networks alone, each on the last token's input: for the shares of a token's time.
  void ProbeNetworks(ModeRun& run) {
    const bool predicts = run.mode == FfnMode::kSign || run.mode == FfnMode::kLowRank;
    constexpr int kTimes = 4;
    const auto time = [&](const auto& body) {
      const auto begin = Clock::now();
      for (int i = 0; i < kTimes; ++i) {
        for (int l = 0; l < model_.config.num_hidden_layers; ++l) body(l);
      }
      return Seconds(begin) / kTimes;
    };
    run.ffn.values.push_back(time([&](int l) { CHECK(transformer_->ProbeFfn(l).ok()); }));
    if (!predicts) return;
    run.predictor.values.push_back(time([&](int l) { transformer_->ProbePredictor(l); }));
    run.predictor_bytes = 0;
    for (const predictor::LayerPredictors& p : model_.predictors->layers) {
      run.predictor_bytes +=
          static_cast<double>(run.mode == FfnMode::kSign ? p.sign->bytes() : p.low_rank->bytes());
    }
  }

  // Read by the feed-forward networks so far.
  double ffn_bytes() const {
    double bytes = 0;
    for (int l = 0; l < model_.config.num_hidden_layers; ++l)
      bytes += static_cast<double>(transformer_->ffn_counters(l).bytes);
    return bytes;
  }
  double DenseFfnBytes() const {
    double bytes = 0;
    for (int l = 0; l < model_.config.num_hidden_layers; ++l)
      bytes += static_cast<double>(transformer_->ffn().dense_bytes(l));
    return bytes;
  }

  double Prefill() {
    const auto begin = Clock::now();
    for (std::size_t at = 0; at < prompt_.size(); at += kChunk) {
      const std::size_t count = std::min<std::size_t>(prompt_.size() - at, kChunk);
      transformer_->Forward(std::span(prompt_).subspan(at, count), *cache_, Logits::kLast,
                            exec::Transformer::Step::kPrefill);
    }
    return Seconds(begin);
  }

  double Decode(Logits wanted) {
    const auto begin = Clock::now();
    int token = prompt_.front();
    for (int i = 0; i < options_.decode; ++i) {
      const auto logits = transformer_->Forward(std::span(&token, 1), *cache_, wanted);
      if (!logits.empty())
        token = static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    }
    return Seconds(begin);
  }

  // Positions up to `depth` get small finite keys and values: their bytes count, not their worth.
  void FillTo(int depth) {
    const int missing = depth - cache_->length();
    if (missing <= 0) return;
    const int begin = cache_->length();
    CHECK(cache_->Reserve(missing));
    for (int at = begin; at < depth; at += kernels::kKvBlock)
      std::memset(cache_->block_at(at), 0x11, cache_->pool().block_bytes());
    cache_->Advance(missing);
  }

  // Keys and values that a token at `depth` reads.
  double KvBytes(int depth) const {
    const int window = model_.config.sliding_window;
    if (window > 0 && model_.config.max_window_layers == 0) depth = std::min(depth, window);
    return static_cast<double>(cache_->pool().block_bytes()) * depth / kernels::kKvBlock;
  }

  Phase MakePhase(const char* name, int tokens, double bytes, const Samples& seconds) const {
    Phase phase{.name = name, .tokens = tokens, .bytes_per_token = bytes, .tokens_per_s = {}};
    Samples shares;
    for (std::size_t i = 0; i < seconds.values.size(); ++i) {
      phase.tokens_per_s.values.push_back(1 / seconds.values[i]);
      shares.values.push_back(bytes / seconds.values[i] / 1e9 / bandwidth_.values[i]);
    }
    phase.bandwidth_share = shares.median();
    return phase;
  }

  const Options& options_;
  exec::LoadedModel& model_;
  BandwidthProbe probe_;
  std::unique_ptr<exec::Transformer> transformer_;
  std::unique_ptr<exec::KvCache> cache_;
  std::vector<int> prompt_;
  FlashRun flash_;
  std::vector<ModeRun> modes_;
  double ffn_bytes_per_token_ = 0;
  Samples bandwidth_, prefill_, decode_, head_, attention_;  // GB/s; seconds per token
};

Json Report(const exec::LoadedModel& model, const Measurement& m) {
  Json::Array runs;
  for (const Phase& phase : m.Phases()) {
    runs.push_back(Json::Object{
        {"phase", phase.name},
        {"tokens", phase.tokens},
        {"tokens_per_s", phase.tokens_per_s.ToJson()},
        {"bytes_per_token", phase.bytes_per_token},
        {"bandwidth_share", phase.bandwidth_share},
        {"ceiling_tokens_per_s", m.bandwidth().median() * 1e9 / phase.bytes_per_token}});
  }
  return Json::Object{{"machine", Json::Object{{"processor", base::ProcessorName()},
                                               {"threads", model.pool->threads()},
                                               {"cpu_isa", model.ops->name},
                                               {"huge_pages", model.weights->memory.huge()}}},
                      {"model", model.path},
                      {"load_s", model.load_s},
                      {"weight_bytes", static_cast<std::int64_t>(model.weights->memory.size())},
                      {"read_bandwidth_gb_s", m.bandwidth().median()},
                      {"read_bandwidth", m.bandwidth().ToJson()},
                      {"read_bandwidth_of", m.bandwidth_of()},
                      {"runs", std::move(runs)},
                      {"flash", m.streams() ? m.flash().ToJson(model) : Json()},
                      {"hot", HotJson(m.hot())}};
}

double Number(const Json& object, std::initializer_list<const char*> path) {
  const Json* at = &object;
  for (const char* key : path) at = at != nullptr && at->is_object() ? at->Find(key) : nullptr;
  return at != nullptr && at->is_number() ? at->as_double() : 0;
}

const Json* FindRun(const Json& report, const std::string& phase) {
  const Json* runs = report.Find("runs");
  if (runs == nullptr || !runs->is_array()) return nullptr;
  for (const Json& run : runs->as_array()) {
    const Json* name = run.is_object() ? run.Find("phase") : nullptr;
    if (name != nullptr && name->is_string() && name->as_string() == phase) return &run;
  }
  return nullptr;
}

// Ratios of this report to an older one. A phase whose ranges overlap has not clearly changed.
Result<Json> Ratios(const std::string& path, const Json& now) {
  ASSIGN_OR_RETURN(const std::string text, base::ReadFileToString(path));
  const auto old = base::ParseJson(text);
  if (!old.ok() || !old->is_object() || old->Find("runs") == nullptr)
    return base::InvalidArgument(path, ": no report of `thermocline bench --json`");
  Json ratios{
      Json::Object{{"read_bandwidth", Number(now, {"read_bandwidth_gb_s"}) /
                                          std::max(1e-9, Number(*old, {"read_bandwidth_gb_s"}))}}};
  for (const Json& run : now.Find("runs")->as_array()) {
    const std::string phase = run.Find("phase")->as_string();
    const Json* before = FindRun(*old, phase);
    if (before == nullptr) continue;
    const auto get = [](const Json& r, const char* key) {
      return Number(r, {"tokens_per_s", key});
    };
    const double median = get(*before, "median");
    if (median <= 0) continue;
    const bool apart =
        get(run, "min") > get(*before, "max") || get(run, "max") < get(*before, "min");
    ratios.Set(phase, Json::Object{{"ratio", get(run, "median") / median}, {"apart", apart}});
  }
  return ratios;
}

void Print(const exec::LoadedModel& model, const Measurement& m) {
  std::printf("%s, %d threads, %s, %s\n", base::ProcessorName().c_str(), model.pool->threads(),
              model.ops->name, model.weights->memory.huge() ? "huge pages" : "4 KiB pages");
  std::printf("%s: loaded in %.2f s\nread bandwidth of %s %.1f GB/s (min %.1f, max %.1f)\n\n",
              model.path.c_str(), model.load_s, m.bandwidth_of(), m.bandwidth().median(),
              m.bandwidth().min(), m.bandwidth().max());
  std::printf("%-16s %7s %10s %10s %10s %12s %10s %10s\n", "phase", "tokens", "median/s", "min/s",
              "max/s", "MB/token", "bandwidth", "ceiling/s");
  for (const Phase& p : m.Phases()) {
    std::printf("%-16s %7d %10.1f %10.1f %10.1f %12.2f %9.0f%% %10.1f\n", p.name.c_str(), p.tokens,
                p.tokens_per_s.median(), p.tokens_per_s.min(), p.tokens_per_s.max(),
                p.bytes_per_token / 1e6, 100 * p.bandwidth_share,
                m.bandwidth().median() * 1e9 / p.bytes_per_token);
  }
  if (m.streams()) m.flash().Print(model);
  PrintHot(m.hot());
}

void PrintRatios(const std::string& path, const Json& ratios) {
  std::printf("\nratio to %s (the read bandwidth's: %.3f)\n", path.c_str(),
              Number(ratios, {"read_bandwidth"}));
  for (const auto& [phase, entry] : ratios.as_object()) {
    if (!entry.is_object()) continue;
    std::printf("%-10s %.3f%s\n", phase.c_str(), Number(entry, {"ratio"}),
                entry.Find("apart")->as_bool() ? "" : "  (the runs' ranges overlap)");
  }
}

Status Bench(Options options) {
  if (options.flash) return FlashBench(options.model.model, options.plot, options.json);
  if (options.spec.wanted) {
    return SpecBench(options.model, options.spec,
                     {.decode = options.decode > 0 ? options.decode : kSpecDecode,
                      .repetitions = options.repetitions,
                      .plot = options.plot,
                      .json = options.json});
  }
  if (options.decode == 0) options.decode = kDecode;
  if (!options.plot.empty()) return base::InvalidArgument("--plot is for --flash and --spec only");
  std::string& also = options.model.ffn.also;
  if (!options.modes.empty()) also += StrCat(also.empty() ? "" : ",", options.modes);
  options.model.memory.context_length = ContextOf(options, kFfnModeNames.size());
  options.model.memory.tokens_max = kChunk;
  ASSIGN_OR_RETURN(const auto model, LoadWithProgress(options.model));
  if (!options.modes.empty() && model->hot.used) {
    return base::InvalidArgument(
        "--ffn-modes measures modes in turn, each with its neurons where it likes them best; leave "
        "out --hot-memory, or take --ffn-mode");
  }
  if (!options.model.record_trace.empty() && model->hot.used)
    return base::InvalidArgument("--record-trace needs all neurons on one side: --device cpu");
  Measurement measurement(options, *model);
  RETURN_IF_ERROR(measurement.Prepare());
  std::unique_ptr<store::TraceWriter> trace;
  if (!options.model.record_trace.empty()) {
    ASSIGN_OR_RETURN(trace,
                     store::TraceWriter::Create(options.model.record_trace, model->trace_shape()));
    measurement.SetTrace(trace.get());
  }
  RETURN_IF_ERROR(measurement.Run());
  if (trace != nullptr) RETURN_IF_ERROR(trace->Commit());
  Json report = Report(*model, measurement);
  if (!options.compare.empty()) {
    ASSIGN_OR_RETURN(Json ratios, Ratios(options.compare, report));
    report.Set("ratios", std::move(ratios));
  }
  if (options.json) {
    PrintJson(report);
    return OkStatus();
  }
  Print(*model, measurement);
  if (const Json* ratios = report.Find("ratios")) PrintRatios(options.compare, *ratios);
  return OkStatus();
}

}  // namespace

Command AddBench(CLI::App& app) {
  auto o = std::make_shared<Options>();
  AddModelOptions(app, o->model);
  AddFfnOptions(app, o->model.ffn);
  AddMemoryOptions(app, o->model.memory);
  AddHotOptions(app, o->model.hot);
  AddTraceOption(app, o->model.record_trace);
  app.add_option("--prefill", o->prefill, "Prompt tokens")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--decode", o->decode,
                 "Tokens to decode, 32; with --spec tokens of an answer at most, 128")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--depth", o->depth, "Cached tokens before decoding; measures attention too")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--repetitions", o->repetitions, "Measured runs; one more warms up")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--ffn-modes", o->modes,
                 "Decode in each of these modes too, in turn: dense,exact,sign,lowrank,threshold");
  app.add_option("--compare", o->compare, "An earlier report (--json): show the ratios to it");
  app.add_flag("--flash", o->flash,
               "Measure the device that MODEL lies on instead, by its bundle file (MODEL.tcb), by "
               "itself, or, where both are small, by a temporary file; MODEL may be any file or "
               "folder");
  app.add_option("--plot", o->plot,
                 "With --flash: write the curve to this SVG file; with --spec: what was measured");
  app.add_flag("--json", o->json, "One JSON object on standard output");
  AddSpecBenchOptions(app, o->spec, o->model.spec);
  for (const char* name :
       {"--flash", "--prefill", "--depth", "--ffn-modes", "--compare", "--record-trace"})
    app.get_option(name)->excludes("--spec");
  return [o] { return Bench(*o); };
}

}  // namespace thermocline::tools
