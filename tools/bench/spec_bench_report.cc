#include "tools/bench/spec_bench_report.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "engine/base/index.h"
#include "engine/base/ratio.h"
#include "engine/base/system_memory.h"
#include "engine/charts/chart.h"
#include "tools/common/spec_report.h"

namespace thermocline::tools {
namespace {

// A mode's results over all prompts.
struct Totals {
  Samples tokens_per_s = {};
  Samples ratio = {};  // one per prompt
  double drafts = 0, draft_tokens = 0, accepted = 0, hits = 0, misses = 0, wait_s = 0;
};

Totals TotalsOf(const SpecBenchMode& mode) {
  Totals t;
  for (const SpecBenchCell& cell : mode.prompts) {
    const auto& speeds = cell.tokens_per_s.values;
    t.tokens_per_s.values.insert(t.tokens_per_s.values.end(), speeds.begin(), speeds.end());
    if (!cell.ratio.values.empty()) t.ratio.values.push_back(cell.ratio.median());
    t.drafts += cell.usage.drafts;
    t.draft_tokens += cell.usage.draft_tokens;
    t.accepted += cell.usage.accepted_tokens;
    t.hits += cell.usage.branch_hits;
    t.misses += cell.usage.branch_misses;
    t.wait_s += cell.usage.wait_s;
  }
  return t;
}

// The fraction, or nullopt if `whole` is 0.
std::optional<double> Share(base::Number auto part, base::Number auto whole) {
  if (whole <= 0) return std::nullopt;
  return base::Ratio(part, whole);
}

struct Shares {
  std::optional<double> accepted_mean, acceptance, hit_rate, wait, wasted;
};

Shares SharesOf(const SpecBenchMode& mode, const Totals& t) {
  return {.accepted_mean = Share(t.accepted, t.drafts),
          .acceptance = Share(t.accepted, t.draft_tokens),
          .hit_rate = Share(t.hits, t.hits + t.misses),
          .wait = t.drafts > 0 ? Share(t.wait_s, mode.decode_s) : std::nullopt,
          .wasted = Share(mode.wasted_tokens, mode.drafted_tokens)};
}

Json NumberOrNull(std::optional<double> value) { return value.has_value() ? Json(*value) : Json(); }

Json SpreadJson(const Samples& samples) {
  return samples.values.empty() ? Json() : samples.ToJson();
}

Json ModeJson(const SpecBenchMode& mode) {
  const Totals totals = TotalsOf(mode);
  const Shares shares = SharesOf(mode, totals);
  return Json::Object{
      {"mode", SpecModeName(mode.mode)},
      {"tokens_per_s", SpreadJson(totals.tokens_per_s)},
      {"ratio", SpreadJson(totals.ratio)},
      {"accepted_mean", NumberOrNull(shares.accepted_mean)},
      {"acceptance", NumberOrNull(shares.acceptance)},
      {"hit_rate", NumberOrNull(shares.hit_rate)},
      {"wait_share", NumberOrNull(shares.wait)},
      {"wasted_share", NumberOrNull(shares.wasted)},
      {"text_equal", mode.text_equal.has_value() ? Json(*mode.text_equal) : Json()}};
}

// The accepted lengths of drafts of report.histogram_n tokens, as shares.
struct Histogram {
  std::vector<double> measured = {}, fitted = {};  // [n + 1]; empty without drafts
};

Histogram HistogramOf(const SpecBenchReport& report) {
  Histogram h;
  const int n = report.histogram_n;
  if (n == 0) return h;
  const auto& row = report.counts.outcomes[n];
  const std::int64_t drafts = std::accumulate(row.begin(), row.end(), std::int64_t{0});
  for (int k = 0; k <= n; ++k) {
    h.measured.push_back(base::Ratio(row[k], drafts));
    h.fitted.push_back(report.phi(k, n));
  }
  return h;
}

// The share of correction tokens that were guess `i`, the first being 0. `ranks` as in SpecStats.
std::optional<double> HitShare(const std::array<std::int64_t, 6>& ranks, std::size_t i) {
  const std::int64_t all = std::accumulate(ranks.begin(), ranks.end(), std::int64_t{0});
  return Share(ranks[i + 1], all);
}

Json::Array HitShares(const std::array<std::int64_t, 6>& ranks) {
  Json::Array shares;
  constexpr std::size_t kGuesses = 4;  // guesses for the token after a rejected one
  for (std::size_t i = 0; i < kGuesses; ++i) {
    const auto share = HitShare(ranks, i);
    if (share.has_value()) shares.emplace_back(*share);
  }
  return shares;
}

// [16] seconds of a step of [i] + 1 tokens; unmeasured ones come from the line fitted to the
// others.
Json::Array StepTimes(const SpecStats& stats) {
  Json::Array times;
  for (int i = 0; i < base::IntSize(stats.verify_step_s); ++i) {
    const double line = stats.verify_1_s + i * stats.verify_per_token_s;
    times.push_back(stats.verify_step_s[i] > 0 ? stats.verify_step_s[i] : line);
  }
  return times;
}

Json PairJson(const SpecBenchReport& r) {
  const SpecStats& now = r.stats.spec;
  return Json::Object{{"draft_token_s", now.draft_token_s},
                      {"verify_s", StepTimes(now)},
                      {"phi", Json::Object{{"p", r.phi.p}, {"a", r.phi.a}, {"c", r.phi.c}}},
                      {"correction_hits", HitShares(r.counts.correction_ranks)},
                      {"bonus_hit", NumberOrNull(HitShare(r.counts.bonus_ranks, 0))},
                      {"draft_slowdown", now.draft_slowdown},
                      {"verify_slowdown", now.verify_slowdown},
                      {"round_overhead_s", now.round_overhead_s}};
}

Json::Array RoundsJson(const std::vector<SpecRound>& rounds) {
  Json::Array out;
  for (const SpecRound& round : rounds) {
    const Json::Array confidence(round.confidence.begin(), round.confidence.begin() + round.n);
    out.push_back(Json::Object{
        {"n", round.n}, {"k", round.k}, {"rank", round.rank}, {"confidence", confidence}});
  }
  return out;
}

std::string Text(const char* format, std::optional<double> value) {
  if (!value.has_value()) return "-";
  char text[32];
  std::snprintf(text, sizeof(text), format, *value);
  return text;
}

std::string Percent(std::optional<double> share) {
  return share.has_value() ? Text("%.0f%%", 100 * *share) : "-";
}

void PrintMode(const SpecBenchMode& mode) {
  const Totals t = TotalsOf(mode);
  const Shares s = SharesOf(mode, t);
  if (t.ratio.values.empty()) {
    std::printf("%-11s no answer of two tokens\n", SpecModeName(mode.mode));
    return;
  }
  const char* text = !mode.text_equal.has_value() ? "-" : *mode.text_equal ? "same" : "DIFFERS";
  std::printf("%-11s %9.1f %8.1f %8.1f %8.3f %6.3f %6.3f %9s %7s %6s %6s %7s  %s\n",
              SpecModeName(mode.mode), t.tokens_per_s.median(), t.tokens_per_s.min(),
              t.tokens_per_s.max(), t.ratio.median(), t.ratio.min(), t.ratio.max(),
              Text("%.2f", s.accepted_mean).c_str(), Percent(s.acceptance).c_str(),
              Percent(s.hit_rate).c_str(), Percent(s.wait).c_str(), Percent(s.wasted).c_str(),
              text);
}

void PrintHistogram(const SpecBenchReport& report) {
  const Histogram h = HistogramOf(report);
  const int n = report.histogram_n;
  if (n == 0) return;
  std::printf("\naccepted of %d   ", n);
  for (int k = 0; k <= n; ++k) std::printf("%6d", k);
  std::printf("\n  measured      ");
  for (const double share : h.measured) std::printf("%5.1f%%", 100 * share);
  std::printf("\n  fitted (phi)  ");
  for (const double share : h.fitted) std::printf("%5.1f%%", 100 * share);
  std::printf("\n  p %.3f, a %.3f, floor c %.4f\n", report.phi.p, report.phi.a, report.phi.c);
}

// Bars by prompt, one per mode.
template <typename Value>
charts::Chart BarsByPrompt(const SpecBenchReport& report, const char* title, const char* label,
                           const Value& value) {
  constexpr double kLegendRoom = 1.3;
  double highest = 0;
  const double prompts = base::IntSize(report.modes[0].prompts);
  charts::Chart plot{.title = title,
                     .x = {.label = "prompt", .whole = true, .min = 0.5, .max = prompts + 0.5},
                     .y = {.label = label, .min = 0.0}};
  const auto colors = charts::Colors(base::IntSize(report.modes));
  for (std::size_t m = 0; m < report.modes.size(); ++m) {
    charts::Series series{.kind = charts::Series::Kind::kBars,
                          .label = SpecModeName(report.modes[m].mode),
                          .color = colors[m]};
    for (std::size_t p = 0; p < report.modes[m].prompts.size(); ++p) {
      const std::optional<double> height = value(report.modes[m].prompts[p]);
      if (height.has_value()) series.points.emplace_back(p + 1, *height);
    }
    for (const auto& point : series.points) highest = std::max(highest, point.second);
    if (!series.points.empty()) plot.series.push_back(std::move(series));
  }
  if (highest > 0) plot.y.max = kLegendRoom * highest;
  return plot;
}

charts::Chart HistogramPlot(const SpecBenchReport& report) {
  const Histogram h = HistogramOf(report);
  charts::Chart plot{
      .title = "Accepted of " + std::to_string(report.histogram_n) + " drafted tokens",
      .x = {.label = "accepted tokens k",
            .whole = true,
            .min = -0.5,
            .max = report.histogram_n + 0.5},
      .y = {.label = "of the drafts", .percent = true, .min = 0.0}};
  charts::Series measured{
      .kind = charts::Series::Kind::kBars, .label = "measured", .color = "#54aeff"};
  charts::Series fitted{.label = "phi, fitted", .color = "#cf222e"};
  charts::Series points{.kind = charts::Series::Kind::kPoints, .color = fitted.color};
  for (std::size_t k = 0; k < h.measured.size(); ++k) {
    measured.points.emplace_back(k, h.measured[k]);
    fitted.points.emplace_back(k, h.fitted[k]);
  }
  points.points = fitted.points;
  plot.series = {measured, fitted, points};
  return plot;
}

}  // namespace

Json SpecBenchJson(const SpecBenchReport& report) {
  Json::Array modes;
  for (const SpecBenchMode& mode : report.modes) modes.push_back(ModeJson(mode));
  const Histogram histogram = HistogramOf(report);
  return Json::Object{
      {"machine", Json::Object{{"processor", base::ProcessorName()},
                               {"threads", report.stats.threads},
                               {"cpu_isa", report.stats.cpu_isa}}},
      {"model", report.stats.model_path},
      {"draft", report.stats.spec.draft.empty() ? Json() : Json(report.stats.spec.draft)},
      {"source", report.stats.spec.source},
      {"decode", report.decode},
      {"repetitions", report.repetitions},
      {"temperature", report.temperature},
      {"prompts", report.modes[0].prompts.size()},
      {"modes", std::move(modes)},
      {"histogram_n", report.histogram_n},
      {"accepted_histogram", NumbersJson(histogram.measured)},
      {"phi_histogram", NumbersJson(histogram.fitted)},
      {"pair", report.histogram_n > 0 ? PairJson(report) : Json()},
      {"rounds", RoundsJson(report.stats.spec.rounds)}};
}

void PrintSpecBench(const SpecBenchReport& report) {
  const EngineStats& stats = report.stats;
  std::printf("%s, %d threads, %s\n%s, drafts: %s%s%s\n", base::ProcessorName().c_str(),
              stats.threads, stats.cpu_isa.c_str(), stats.model_path.c_str(),
              stats.spec.used ? stats.spec.source.c_str() : "none",
              stats.spec.draft.empty() ? "" : " ", stats.spec.draft.c_str());
  if (!stats.spec.fallback.empty())
    std::printf("no draft model: %s\n", stats.spec.fallback.c_str());
  std::printf("%zu prompts, %d times, up to %d tokens, temperature %g\n\n",
              report.modes[0].prompts.size(), report.repetitions, report.decode,
              report.temperature);
  std::printf("%-11s %9s %8s %8s %8s %6s %6s %9s %7s %6s %6s %7s  %s\n", "mode", "median/s",
              "min/s", "max/s", "to off", "min", "max", "accepted", "of all", "hits", "waits",
              "wasted", "text");
  for (const SpecBenchMode& mode : report.modes) PrintMode(mode);
  PrintHistogram(report);
  if (stats.spec.draft_token_s <= 0) return;
  std::printf(
      "\na drafted token %.3f ms; a step of the target: of one token %.3f ms, each further "
      "%.3f ms\n",
      1e3 * stats.spec.draft_token_s, 1e3 * stats.spec.verify_1_s,
      1e3 * stats.spec.verify_per_token_s);
}

std::string SpecBenchSvg(const SpecBenchReport& report) {
  const auto accepted = [](const SpecBenchCell& cell) {
    return Share(cell.usage.accepted_tokens, cell.usage.drafts);
  };
  const auto speed = [](const SpecBenchCell& cell) -> std::optional<double> {
    if (cell.tokens_per_s.values.empty()) return std::nullopt;
    return cell.tokens_per_s.median();
  };
  const std::vector<charts::Chart> plots = {
      HistogramPlot(report),
      BarsByPrompt(report, "Accepted tokens of a draft", "tokens, mean", accepted),
      BarsByPrompt(report, "Speed", "tokens/s", speed)};
  return charts::RenderPicture(plots, 3);
}

}  // namespace thermocline::tools
