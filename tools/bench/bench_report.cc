#include "tools/bench/bench_report.h"

#include <algorithm>
#include <cstdio>
#include <initializer_list>

#include "engine/base/file.h"
#include "engine/base/system_memory.h"
#include "tools/common/hot_report.h"

namespace thermocline::tools {
namespace {

double Number(const Json& object, std::initializer_list<const char*> path) {
  const Json* at = &object;
  for (const char* key : path) at = at != nullptr && at->is_object() ? at->Find(key) : nullptr;
  return at != nullptr && at->is_number() ? at->as_double() : 0;
}

// Tokens/s that the read bandwidth allows, or the dot products' speed if that allows fewer.
double Ceiling(const BenchMeasurement& m, const BenchPhase& phase) {
  const double bytes = m.bandwidth().median() * 1e9 / phase.work.bytes;
  if (phase.instruction_share == 0) return bytes;
  return std::min(bytes, m.instructions().median() * 1e9 / phase.work.operations);
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

Json AttentionJson(const PromptAttention& attention) {
  return Json::Object{{"share", attention.share},
                      {"gop_per_s", attention.gop_per_s},
                      {"cycles_a_score", attention.cycles_a_score}};
}

}  // namespace

Json BenchReport(const load::LoadedModel& model, const BenchMeasurement& m) {
  Json::Array runs;
  for (const BenchPhase& phase : m.Phases()) {
    runs.push_back(Json::Object{{"phase", phase.name},
                                {"tokens", phase.tokens},
                                {"tokens_per_s", phase.tokens_per_s.ToJson()},
                                {"bytes_per_token", phase.work.bytes},
                                {"operations_per_token", phase.work.operations},
                                {"bandwidth_share", phase.bandwidth_share},
                                {"instruction_share", phase.instruction_share},
                                {"bound_by", phase.bound_by()},
                                {"ceiling_tokens_per_s", Ceiling(m, phase)}});
  }
  return Json::Object{{"machine", Json::Object{{"processor", base::ProcessorName()},
                                               {"threads", model.pool->threads()},
                                               {"cpu_isa", model.ops->name},
                                               {"huge_pages", model.weights->memory.huge()}}},
                      {"model", model.path},
                      {"load_s", model.load_s},
                      {"weight_bytes", model.weights->memory.held()},
                      {"read_bandwidth_gb_s", m.bandwidth().median()},
                      {"read_bandwidth", m.bandwidth().ToJson()},
                      {"read_bandwidth_of", m.bandwidth_of()},
                      {"instruction_ceiling_gop_s", m.instructions().median()},
                      {"runs", std::move(runs)},
                      {"prompt_attention", AttentionJson(m.prompt_attention())},
                      {"flash", m.streams() ? m.flash().ToJson(model) : Json()},
                      {"hot", HotJson(m.hot())}};
}

void PrintBench(const load::LoadedModel& model, const BenchMeasurement& m) {
  std::printf("%s, %d threads, %s, %s\n", base::ProcessorName().c_str(), model.pool->threads(),
              model.ops->name, model.weights->memory.huge() ? "huge pages" : "4 KiB pages");
  std::printf("%s: loaded in %.2f s\nread bandwidth of %s %.1f GB/s (min %.1f, max %.1f)\n",
              model.path.c_str(), model.load_s, m.bandwidth_of(), m.bandwidth().median(),
              m.bandwidth().min(), m.bandwidth().max());
  std::printf("dot products alone %.0f G multiply-adds/s (min %.0f, max %.0f)\n\n",
              m.instructions().median(), m.instructions().min(), m.instructions().max());
  std::printf("%-16s %7s %10s %10s %10s %10s %10s %7s %10s  %s\n", "phase", "tokens", "median/s",
              "min/s", "max/s", "MB/token", "bandwidth", "dots", "ceiling/s", "nearer to");
  for (const BenchPhase& p : m.Phases()) {
    std::printf("%-16s %7d %10.1f %10.1f %10.1f %10.2f %9.0f%% %6.0f%% %10.1f  %s\n",
                p.name.c_str(), p.tokens, p.tokens_per_s.median(), p.tokens_per_s.min(),
                p.tokens_per_s.max(), p.work.bytes / 1e6, 100 * p.bandwidth_share,
                100 * p.instruction_share, Ceiling(m, p), p.bound_by());
  }
  if (const PromptAttention attention = m.prompt_attention(); attention.share > 0)
    std::printf(
        "\nattention takes %.0f%% of the prompt: %.0f G multiply-adds/s (%.0f%% of the dot "
        "products alone), %.1f cycles a score and core\n",
        100 * attention.share, attention.gop_per_s,
        100 * attention.gop_per_s / std::max(1e-9, m.instructions().median()),
        attention.cycles_a_score);
  if (m.streams()) m.flash().Print(model);
  PrintHot(m.hot());
}

Result<Json> BenchRatios(const std::string& path, const Json& now) {
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

void PrintBenchRatios(const std::string& path, const Json& ratios) {
  std::printf("\nratio to %s (the read bandwidth's: %.3f)\n", path.c_str(),
              Number(ratios, {"read_bandwidth"}));
  for (const auto& [phase, entry] : ratios.as_object()) {
    if (!entry.is_object()) continue;
    std::printf("%-10s %.3f%s\n", phase.c_str(), Number(entry, {"ratio"}),
                entry.Find("apart")->as_bool() ? "" : "  (the runs' ranges overlap)");
  }
}

}  // namespace thermocline::tools
