// `thermocline bench`: prefill and decode speed, beside the read bandwidth of the same cores in the
// same run.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <numeric>

#include <CLI/CLI.hpp>

#include "engine/base/huge_buffer.h"
#include "engine/exec/loaded_model.h"
#include "engine/tools/console.h"

namespace thermocline::tools {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string model, isa;
  int threads = 0, prefill = 128, decode = 32, repetitions = 5;
  bool json = false;
};

double Seconds(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Bytes per second at which the pool's threads read memory they only add up: the ceiling of
// decoding.
class BandwidthProbe {
 public:
  static Result<BandwidthProbe> Create() {
    BandwidthProbe probe;
    ASSIGN_OR_RETURN(probe.buffer_, base::HugeBuffer::Allocate(kBytes));
    auto* words = reinterpret_cast<std::uint64_t*>(probe.buffer_.data());
    for (std::size_t i = 0; i < kBytes / 8; ++i) words[i] = i * 0x9E3779B97F4A7C15U;
    return probe;
  }

  double MeasureGbPerS(base::WorkerPool& pool) {
    constexpr int kItems = 512;
    std::vector<std::uint64_t> sums(kItems);
    const auto begin = Clock::now();
    pool.Run(kItems, [&](int item, int) {
      const std::size_t words = kBytes / 8 / kItems;
      const auto* data = reinterpret_cast<const std::uint64_t*>(buffer_.data()) +
                         static_cast<std::size_t>(item) * words;
      std::uint64_t lanes[32] = {};
      for (std::size_t i = 0; i < words; i += 32) {
        for (std::size_t lane = 0; lane < 32; ++lane) lanes[lane] += data[i + lane];
      }
      sums[static_cast<std::size_t>(item)] =
          std::accumulate(std::begin(lanes), std::end(lanes), std::uint64_t{0});
    });
    checksum_ += std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
    return static_cast<double>(kBytes) / Seconds(begin) / 1e9;
  }
  std::uint64_t checksum() const { return checksum_; }

 private:
  static constexpr std::size_t kBytes = std::size_t{1} << 30;
  base::HugeBuffer buffer_;
  std::uint64_t checksum_ = 0;
};

struct Samples {
  std::vector<double> values;
  double median() const {
    std::vector<double> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  double min() const { return *std::min_element(values.begin(), values.end()); }
  double max() const { return *std::max_element(values.begin(), values.end()); }
  Json ToJson() const { return Json::Object{{"median", median()}, {"min", min()}, {"max", max()}}; }
};

std::string ProcessorName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

struct Measured {
  Samples bandwidth, prefill, decode;
};

// Interleaves the three measurements, so that a noisy neighbour hits all alike.
Result<Measured> Measure(const Options& o, const exec::LoadedModel& model) {
  ASSIGN_OR_RETURN(auto probe, BandwidthProbe::Create());
  const int context = o.prefill + o.decode + 1;
  if (context > model.config.max_position_embeddings) {
    return base::OutOfRange("--prefill and --decode together need ", context,
                            " tokens, the model's context has ",
                            model.config.max_position_embeddings);
  }
  const auto transformer = model.MakeTransformer(std::min(o.prefill, 128), context);
  ASSIGN_OR_RETURN(auto cache, exec::KvCache::Create(model.config, context));
  std::vector<int> prompt(static_cast<std::size_t>(o.prefill));
  for (std::size_t i = 0; i < prompt.size(); ++i)
    prompt[i] =
        static_cast<int>((i * 7919 + 13) % static_cast<std::size_t>(model.config.vocab_size));
  Measured out;
  for (int r = -1; r < o.repetitions; ++r) {  // the first run warms up
    const double bandwidth = probe.MeasureGbPerS(*model.pool);
    cache.SetLength(0);
    auto begin = Clock::now();
    for (std::size_t at = 0; at < prompt.size();
         at += static_cast<std::size_t>(transformer->tokens_max())) {
      const std::size_t count =
          std::min(prompt.size() - at, static_cast<std::size_t>(transformer->tokens_max()));
      transformer->Forward(std::span(prompt).subspan(at, count), cache,
                           exec::Transformer::Logits::kLast);
    }
    const double prefill_s = Seconds(begin);
    begin = Clock::now();
    int token = prompt.front();
    for (int i = 0; i < o.decode; ++i) {
      const auto logits =
          transformer->Forward(std::span(&token, 1), cache, exec::Transformer::Logits::kLast);
      token = static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    }
    const double decode_s = Seconds(begin);
    if (r < 0) continue;
    out.bandwidth.values.push_back(bandwidth);
    out.prefill.values.push_back(o.prefill / prefill_s);
    out.decode.values.push_back(o.decode / decode_s);
  }
  if (probe.checksum() == 0) return base::Internal("the bandwidth probe read nothing");
  return out;
}

Json Report(const Options& o, const exec::LoadedModel& model, const Measured& m) {
  const double bytes = static_cast<double>(model.weights->bytes_per_token());
  const auto share = [&](double tokens_per_s) {
    return tokens_per_s * bytes / 1e9 / m.bandwidth.median();
  };
  return Json::Object{
      {"machine", Json::Object{{"processor", ProcessorName()},
                               {"threads", model.pool->threads()},
                               {"cpu_isa", model.ops->name},
                               {"huge_pages", model.weights->memory.huge()}}},
      {"model", model.path},
      {"load_s", model.load_s},
      {"read_bandwidth_gb_s", m.bandwidth.median()},
      {"runs", Json::Array{Json(Json::Object{{"phase", "prefill"},
                                             {"tokens", o.prefill},
                                             {"tokens_per_s", m.prefill.ToJson()},
                                             {"bytes_per_token", bytes / std::min(o.prefill, 128)},
                                             {"bandwidth_share", share(m.prefill.median()) /
                                                                     std::min(o.prefill, 128)}}),
                           Json(Json::Object{{"phase", "decode"},
                                             {"tokens", o.decode},
                                             {"tokens_per_s", m.decode.ToJson()},
                                             {"bytes_per_token", bytes},
                                             {"bandwidth_share", share(m.decode.median())}})}}};
}

Status Bench(const Options& options) {
  ProgressBar bar("loading");
  ASSIGN_OR_RETURN(const auto model, exec::LoadModel({.model = options.model,
                                                      .threads = options.threads,
                                                      .cpu_isa = options.isa,
                                                      .on_progress = bar.callback()}));
  bar.Clear();
  ASSIGN_OR_RETURN(const Measured m, Measure(options, *model));
  const Json report = Report(options, *model, m);
  if (options.json) {
    PrintJson(report);
    return OkStatus();
  }
  std::printf("%s, %d threads, %s, %s\n", ProcessorName().c_str(), model->pool->threads(),
              model->ops->name, model->weights->memory.huge() ? "huge pages" : "4 KiB pages");
  std::printf("%s: loaded in %.2f s\nread bandwidth %.1f GB/s (min %.1f, max %.1f)\n\n",
              model->path.c_str(), model->load_s, m.bandwidth.median(), m.bandwidth.min(),
              m.bandwidth.max());
  std::printf("%-8s %7s %10s %10s %10s %12s %10s\n", "phase", "tokens", "median/s", "min/s",
              "max/s", "MB/token", "bandwidth");
  const double megabytes = static_cast<double>(model->weights->bytes_per_token()) / 1e6;
  std::printf("%-8s %7d %10.1f %10.1f %10.1f %12s %10s\n", "prefill", options.prefill,
              m.prefill.median(), m.prefill.min(), m.prefill.max(), "-", "-");
  std::printf("%-8s %7d %10.1f %10.1f %10.1f %12.2f %9.0f%%\n", "decode", options.decode,
              m.decode.median(), m.decode.min(), m.decode.max(), megabytes,
              100 * m.decode.median() * megabytes / 1e3 / m.bandwidth.median());
  return OkStatus();
}

}  // namespace

Command AddBench(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_option("model", o->model, "Model file, folder or built-in name")->required();
  app.add_option("-t,--threads", o->threads, "Kernel threads; 0 = all processors")
      ->check(CLI::Range(0, 256));
  app.add_option("--prefill", o->prefill, "Prompt tokens")->check(CLI::Range(1, 1 << 20));
  app.add_option("--decode", o->decode, "Tokens to decode")->check(CLI::Range(1, 1 << 20));
  app.add_option("--repetitions", o->repetitions, "Measured runs; one more warms up")
      ->check(CLI::Range(1, 1000));
  app.add_option("--cpu-isa", o->isa, "avx512, avx2 or reference");
  app.add_flag("--json", o->json, "One JSON object on standard output");
  return [o] { return Bench(*o); };
}

}  // namespace thermocline::tools
