#include "loadtest/measure/slo.h"

#include <cmath>

#include "engine/base/ratio.h"

namespace thermocline::loadtest {
namespace {

constexpr const char* kExample = "; an example: ttft:p95<1s,itl:p99<100ms,errors<1%";

Status Bad(std::string_view option, std::string_view term, std::string_view why) {
  return base::InvalidArgument(option, " '", base::Shorten(term, 100), "': ", why);
}

std::optional<MeasureIndex> MeasureOf(std::string_view name) {
  for (int i = 0; i < kNumMeasures; ++i) {
    if (name == kMeasures[i].name) return static_cast<MeasureIndex>(i);
  }
  return std::nullopt;
}

// True for mean, min, max, and percentiles such as "p99.9".
bool IsStatistic(std::string_view text) {
  if (text == "mean" || text == "min" || text == "max") return true;
  if (!text.starts_with('p')) return false;
  const auto q = base::ParseNumber<double>(text.substr(1));
  return q.has_value() && *q >= 0 && *q <= 100;
}

double StatisticOf(const Samples& samples, std::string_view name) {
  if (name == "mean") return samples.mean();
  if (name == "min") return samples.min();
  if (name == "max") return samples.max();
  return samples.Percentile(base::ParseNumber<double>(name.substr(1)).value_or(50));
}

std::optional<double> ParseShare(std::string_view text) {
  const bool percent = text.ends_with('%');
  if (percent) text.remove_suffix(1);
  const auto value = base::ParseNumber<double>(text);
  if (!value.has_value() || !(*value >= 0)) return std::nullopt;
  return percent ? *value / 100 : *value;
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

struct Comparison {
  std::string_view left, right;
  bool below;
};

// Splits "left<right" or "left>right"; "<=" means the same as "<".
std::optional<Comparison> SplitComparison(std::string_view term) {
  const std::size_t at = term.find_first_of("<>");
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view right = term.substr(at + 1);
  if (right.starts_with('=')) right.remove_prefix(1);
  return Comparison{.left = term.substr(0, at), .right = right, .below = term[at] == '<'};
}

Result<SloTerm> ParseLatency(const Comparison& parts, SloTerm term) {
  const std::size_t colon = parts.left.find(':');
  const auto measure = MeasureOf(parts.left.substr(0, colon));
  if (!measure.has_value())
    return Bad("--slo", term.text,
               "known are ttft, itl, tpot, e2e, queue, errors, goodput, requests_per_s and "
               "tokens_per_s");
  if (colon == std::string_view::npos || !IsStatistic(parts.left.substr(colon + 1)))
    return Bad("--slo", term.text, StrCat("a statistic is missing (mean, max, p95)", kExample));
  const auto limit = ParseDuration(parts.right);
  if (!limit.has_value()) return Bad("--slo", term.text, "the limit is no time, as 1s or 100ms");
  if (!term.below) return Bad("--slo", term.text, "a latency is limited by '<'");
  term.measure = *measure;
  term.statistic = parts.left.substr(colon + 1);
  term.limit = *limit;
  return term;
}

Result<SloTerm> ParseTerm(std::string_view text) {
  SloTerm term{.text = std::string(text)};
  const auto parts = SplitComparison(text);
  if (!parts.has_value()) return Bad("--slo", text, StrCat("'<' is missing", kExample));
  term.below = parts->below;
  constexpr std::pair<std::string_view, SloTerm::Quantity> kRates[] = {
      {"errors", SloTerm::Quantity::kErrors},
      {"goodput", SloTerm::Quantity::kGoodput},
      {"requests_per_s", SloTerm::Quantity::kRequestsPerS},
      {"tokens_per_s", SloTerm::Quantity::kTokensPerS}};
  for (const auto& [name, quantity] : kRates) {
    if (parts->left != name) continue;
    const auto limit = ParseShare(parts->right);
    if (!limit.has_value()) return Bad("--slo", text, "the limit is no number");
    if (term.below != (quantity == SloTerm::Quantity::kErrors))
      return Bad("--slo", text, "errors are limited by '<', rates by '>'");
    term.quantity = quantity;
    term.limit = *limit;
    return term;
  }
  return ParseLatency(*parts, std::move(term));
}

double RateOf(SloTerm::Quantity quantity, const Throughput& throughput) {
  if (quantity == SloTerm::Quantity::kGoodput) return throughput.goodput;
  return quantity == SloTerm::Quantity::kRequestsPerS ? throughput.requests_per_s
                                                      : throughput.output_tokens_per_s;
}

}  // namespace

std::optional<double> ParseDuration(std::string_view text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}};
  double scale = 1;
  for (const auto& [unit, seconds] : kUnits) {
    if (!text.ends_with(unit)) continue;
    scale = seconds;
    text.remove_suffix(unit.size());
    break;
  }
  const auto value = base::ParseNumber<double>(text);
  if (!value.has_value() || !std::isfinite(*value) || *value < 0) return std::nullopt;
  return *value * scale;
}

Throughput ThroughputOf(const Figures& figures, double elapsed_s) {
  const double seconds = std::max(elapsed_s, 1e-9);
  const auto rate = [&](std::int64_t count) { return static_cast<double>(count) / seconds; };
  return {.elapsed_s = elapsed_s,
          .requests_per_s = rate(figures.count(Outcome::kOk)),
          .output_tokens_per_s = rate(figures.output_tokens),
          .prompt_tokens_per_s = rate(figures.prompt_tokens),
          .goodput = rate(figures.good)};
}

Result<std::vector<SloTerm>> ParseSlo(std::string_view text) {
  std::vector<SloTerm> terms;
  if (text.empty()) return terms;
  for (const std::string_view part : Split(text, ',')) {
    ASSIGN_OR_RETURN(SloTerm term, ParseTerm(part));
    terms.push_back(std::move(term));
  }
  return terms;
}

SloTerm::Verdict SloTerm::Evaluate(const Figures& figures, const Throughput& throughput) const {
  Verdict verdict;
  if (quantity == Quantity::kLatency) {
    const Samples& samples = figures.latency[measure];
    if (samples.count() > 0) verdict.value = StatisticOf(samples, statistic);
  } else if (quantity == Quantity::kErrors) {
    if (figures.requests > 0) verdict.value = base::Ratio(figures.failed(), figures.requests);
  } else {
    verdict.value = RateOf(quantity, throughput);
  }
  if (verdict.value.has_value())
    verdict.met = below ? *verdict.value <= limit : *verdict.value >= limit;
  return verdict;
}

bool GoodLimits::Holds(const Answer& answer, const Latencies& latencies) const {
  if (answer.outcome != Outcome::kOk) return false;
  for (const auto& [measure, limit] : limits) {
    const double values[kNumMeasures] = {latencies.ttft.value_or(INFINITY),
                                         latencies.itl_max.value_or(0), latencies.tpot.value_or(0),
                                         latencies.e2e, latencies.queue};
    if (values[measure] > limit) return false;
  }
  return true;
}

Result<GoodLimits> ParseGoodLimits(std::string_view text) {
  GoodLimits good;
  if (text.empty()) return good;
  for (const std::string_view part : Split(text, ',')) {
    const auto sides = SplitComparison(part);
    const auto measure = sides.has_value() ? MeasureOf(sides->left) : std::nullopt;
    const auto limit = sides.has_value() ? ParseDuration(sides->right) : std::nullopt;
    if (!measure.has_value() || !limit.has_value() || !sides->below)
      return Bad("--goodput", part, "an example: ttft<1s,tpot<50ms (or itl, e2e, queue)");
    good.limits.emplace_back(*measure, *limit);
  }
  return good;
}

GoodLimits LimitsOf(const std::vector<SloTerm>& slo) {
  GoodLimits good;
  for (const SloTerm& term : slo) {
    if (term.quantity == SloTerm::Quantity::kLatency)
      good.limits.emplace_back(term.measure, term.limit);
  }
  return good;
}

}  // namespace thermocline::loadtest
