#include "loadtest/measure/server_metrics.h"

#include <cmath>

namespace thermocline::loadtest {
namespace {

// Counters and gauges that have the same names in Thermocline and vLLM.
constexpr std::string_view kCounters[] = {"prompt_tokens_total",
                                          "generation_tokens_total",
                                          "prefix_cache_queries_total",
                                          "prefix_cache_hits_total",
                                          "spec_decode_num_draft_tokens_total",
                                          "spec_decode_num_accepted_tokens_total",
                                          "num_preemptions_total",
                                          "preemptions_total",
                                          "requests_cancelled_total"};
constexpr std::string_view kGauges[] = {"num_requests_running", "num_requests_waiting"};
constexpr std::string_view kEnergy = "energy_joules_total";

// The metric's name without the server's prefix.
std::string_view KnownName(std::string_view full) {
  for (const char separator : {'_', ':'}) {
    const std::size_t at = full.find(separator);
    if (at == std::string_view::npos) continue;
    const std::string_view name = full.substr(at + 1);
    for (const std::string_view known : kCounters) {
      if (name == known) return known;
    }
    for (const std::string_view known : kGauges) {
      if (name == known) return known;
    }
    if (name == kEnergy) return kEnergy;
  }
  return {};
}

std::string RailOf(std::string_view labels) {
  constexpr std::string_view kKey = "rail=\"";
  const std::size_t at = labels.find(kKey);
  if (at == std::string_view::npos) return "all";
  labels.remove_prefix(at + kKey.size());
  return base::ReplaceInvalidUtf8(base::Shorten(labels.substr(0, labels.find('"')), 60));
}

void ReadLine(std::string_view line, MetricValues& values) {
  if (line.empty() || line.front() == '#') return;
  const std::size_t name_end = line.find_first_of("{ ");
  const std::string_view known = KnownName(line.substr(0, name_end));
  if (known.empty() || name_end == std::string_view::npos) return;
  const std::size_t labels_end = line[name_end] == '{' ? line.rfind('}') : name_end;
  if (labels_end == std::string_view::npos) return;
  std::string_view number = line.substr(labels_end + 1);
  while (number.starts_with(' ')) number.remove_prefix(1);
  const auto value = base::ParseNumber<double>(number.substr(0, number.find(' ')));
  if (!value.has_value() || !std::isfinite(*value)) return;
  const std::string_view labels = line.substr(name_end, labels_end - name_end);
  const std::string key =
      known == kEnergy ? StrCat(kEnergy, " ", RailOf(labels)) : std::string(known);
  constexpr std::size_t kNamesMax = 200;
  if (values.size() < kNamesMax || values.contains(key)) values[key] += *value;
}

double ValueOf(const Json& json, std::string_view key) {
  const Json* found = json.Find(key);
  return found == nullptr ? 0 : found->as_double();
}

void AddRatio(Json& delta, std::string_view name, std::string_view part, std::string_view whole) {
  const double all = ValueOf(delta, whole);
  if (all > 0) delta.Set(name, ValueOf(delta, part) / all);
}

}  // namespace

MetricValues ParseMetrics(std::string_view page) {
  MetricValues values;
  for (std::size_t at = 0; at < page.size();) {
    const std::size_t end = std::min(page.find('\n', at), page.size());
    std::string_view line = page.substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    ReadLine(line, values);
    at = end + 1;
  }
  return values;
}

Json MetricsDelta(const MetricValues& before, const MetricValues& after) {
  Json delta = Json::Object{};
  Json::Object joules;
  for (const auto& [name, value] : after) {
    const auto found = before.find(name);
    const double added = value - (found == before.end() ? 0 : found->second);
    if (name.starts_with(kEnergy)) {
      joules.emplace_back(name.substr(kEnergy.size() + 1), added);
    } else if (name.ends_with("_total")) {
      delta.Set(name, added);
    }
  }
  if (delta.as_object().empty() && joules.empty()) return nullptr;
  AddRatio(delta, "cache_hit_ratio", "prefix_cache_hits_total", "prefix_cache_queries_total");
  AddRatio(delta, "draft_acceptance", "spec_decode_num_accepted_tokens_total",
           "spec_decode_num_draft_tokens_total");
  if (joules.empty()) return delta;
  const double tokens = ValueOf(delta, "generation_tokens_total");
  delta.Set("joules", joules);
  for (auto& [rail, value] : joules) value = tokens > 0 ? value.as_double() / tokens : 0.0;
  delta.Set("joules_per_token", joules);
  return delta;
}

std::optional<double> RequestsLeft(const MetricValues& values) {
  const auto running = values.find("num_requests_running");
  const auto waiting = values.find("num_requests_waiting");
  if (running == values.end()) return std::nullopt;
  return running->second + (waiting == values.end() ? 0 : waiting->second);
}

}  // namespace thermocline::loadtest
