// `thermocline bench`: prefill and decode speed, compared with the read bandwidth of the same cores
// in the same run.
#include <memory>
#include <string>

#include "tools/bench/bench_measurement.h"
#include "tools/bench/bench_report.h"
#include "tools/bench/flash_bench.h"
#include "tools/bench/spec_bench.h"
#include "tools/common/console.h"
#include "tools/common/model_options.h"

namespace thermocline::tools {
namespace {

constexpr int kDecode = 32, kSpecDecode = 128;  // tokens to decode, if not given

struct Options {
  ModelOptions model = CommandLineDefaults();
  BenchSize size;  // decode: 0 = not given
  std::string compare, plot;
  bool json = false, flash = false;
  SpecBenchOptions spec;
};

Status Bench(Options options) {
  if (options.flash) return FlashBench(options.model.path, options.plot, options.json);
  if (options.spec.wanted) {
    return SpecBench(options.model, options.spec,
                     {.decode = options.size.decode > 0 ? options.size.decode : kSpecDecode,
                      .repetitions = options.size.repetitions,
                      .plot = options.plot,
                      .json = options.json});
  }
  if (options.size.decode == 0) options.size.decode = kDecode;
  if (!options.plot.empty()) return base::InvalidArgument("--plot is for --flash and --spec only");
  std::string& also = options.model.ffn.also;
  if (!options.size.modes.empty()) also += StrCat(also.empty() ? "" : ",", options.size.modes);
  options.model.context_length = BenchContext(options.size, kFfnModeNames.size());
  ASSIGN_OR_RETURN(const auto model, LoadWithProgress(options.model, {.tokens_max = kBenchChunk}));
  if (!options.size.modes.empty() && model->hot.used) {
    return base::InvalidArgument(
        "--ffn-modes measures modes in turn, each with its neurons where it likes them best; leave "
        "out --hot-memory, or take --ffn-mode");
  }
  if (!options.model.record_trace.empty() && model->hot.used)
    return base::InvalidArgument("--record-trace needs all neurons on one side: --device cpu");
  BenchMeasurement measurement(options.size, *model);
  RETURN_IF_ERROR(measurement.Prepare());
  std::unique_ptr<store::TraceWriter> trace;
  if (!options.model.record_trace.empty()) {
    ASSIGN_OR_RETURN(trace,
                     store::TraceWriter::Create(options.model.record_trace, model->trace_shape()));
    measurement.SetTrace(trace.get());
  }
  RETURN_IF_ERROR(measurement.Run());
  if (trace != nullptr) RETURN_IF_ERROR(trace->Commit());
  Json report = BenchReport(*model, measurement);
  if (!options.compare.empty()) {
    ASSIGN_OR_RETURN(Json ratios, BenchRatios(options.compare, report));
    report.Set("ratios", std::move(ratios));
  }
  if (options.json) {
    PrintJson(report);
    return OkStatus();
  }
  PrintBench(*model, measurement);
  if (const Json* ratios = report.Find("ratios")) PrintBenchRatios(options.compare, *ratios);
  return OkStatus();
}

}  // namespace

Command AddBench(const OptionSet& set) {
  auto o = std::make_shared<Options>();
  AddModelOptions(set, o->model);
  AddDecodeOptions(set, o->model);
  AddOptions(set, OptionGroup::kHot, o->model);
  AddMeasurementOptions(set, o->model);
  set.Add("--prefill", IntValue{&o->size.prefill, 1, 1 << 20}, "Prompt tokens").ShowDefault();
  set.Add("--decode", IntValue{&o->size.decode, 1, 1 << 20},
          "Tokens to decode, 32; with --spec tokens of an answer at most, 128");
  set.Add("--depth", IntValue{&o->size.depth, 0, 1 << 20},
          "Cached tokens before decoding; measures attention too")
      .ShowDefault();
  set.Add("--repetitions", IntValue{&o->size.repetitions, 1, 1000},
          "Measured runs; one more warms up")
      .ShowDefault();
  set.Add("--ffn-modes", o->size.modes,
          "Decode in each of these modes too, in turn: dense,exact,sign,lowrank,threshold");
  set.Add("--compare", o->compare, "An earlier report (--json): show the ratios to it");
  set.Add("--flash", o->flash,
          "Measure the device that MODEL lies on instead, by its bundle file (MODEL.tcb), by "
          "itself, or, where both are small, by a temporary file; MODEL may be any file or "
          "folder");
  set.Add("--plot", o->plot,
          "With --flash: write the curve to this SVG file; with --spec: what was measured");
  set.Add("--json", o->json, "One JSON object on standard output");
  AddSpecBenchOptions(set, o->spec, o->model);
  for (const char* name :
       {"--flash", "--prefill", "--depth", "--ffn-modes", "--compare", "--record-trace"})
    set.Find(name).Excludes(set.Find("--spec"));
  return [o] { return Bench(*o); };
}

}  // namespace thermocline::tools
