// `thermocline plan --replay`: simulates caches of several sizes and policies on a trace.
#include "tools/plan/plan_replay.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

#include "engine/base/file.h"
#include "engine/base/ratio.h"
#include "engine/charts/chart.h"
#include "tools/common/console.h"
#include "tools/common/eta_bar.h"
#include "tools/common/model_options.h"
#include "tools/common/side_car_options.h"

namespace thermocline::tools {
namespace {

using offline::CachePolicy;
using offline::kCachePolicies;

constexpr std::size_t kPolicies = std::size(kCachePolicies);

// The policies' results for one cache size.
struct Row {
  double share = 0;
  std::size_t neurons = 0;
  std::array<offline::ReplayResult, kPolicies> results;
};

// Parses "20%" or "0.2", separated by commas.
Result<std::vector<double>> ParseShares(const std::string& text) {
  std::vector<double> shares;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string_view item = std::string_view(text).substr(at, end - at);
    double value = 0;
    const auto [rest, error] = std::from_chars(item.data(), item.data() + item.size(), value);
    const std::string_view unit(rest, item.data() + item.size() - rest);
    if (unit == "%") value /= 100;
    if (error != std::errc() || (!unit.empty() && unit != "%") || !(value > 0 && value <= 1))
      return base::InvalidArgument("--memory ", text, ": '", item,
                                   "' is no share of the neurons between 0 and 100%");
    shares.push_back(value);
    at = end + 1;
  }
  std::sort(shares.begin(), shares.end());
  return shares;
}

std::vector<Row> ReplayAll(const offline::Replay& replay, const std::vector<double>& shares) {
  std::vector<Row> rows;
  EtaBar bar;
  double done = 0;
  for (const double share : shares) {
    Row& row = rows.emplace_back();
    row.share = share;
    row.neurons = std::max<std::size_t>(
        1, static_cast<std::size_t>(share * static_cast<double>(replay.entries())));
    for (std::size_t i = 0; i < kPolicies; ++i) {
      row.results[i] = replay.Run(kCachePolicies[i], row.neurons);
      bar.Show(++done / static_cast<double>(kPolicies * shares.size()), "replaying");
    }
  }
  return rows;
}

Json RowsJson(const std::vector<Row>& rows) {
  Json::Array out;
  for (const Row& row : rows) {
    Json policies{Json::Object()};
    for (std::size_t i = 0; i < kPolicies; ++i) {
      const offline::ReplayResult& r = row.results[i];
      Json policy = Json::Object{{"hit_rate", r.warm.rate()}, {"cold_hit_rate", r.cold.rate()}};
      if (kCachePolicies[i] == CachePolicy::kWindow) policy.Set("window", r.window);
      policies.Set(CachePolicyName(kCachePolicies[i]), std::move(policy));
    }
    out.push_back(Json::Object{
        {"memory", row.share}, {"neurons", row.neurons}, {"policies", std::move(policies)}});
  }
  return out;
}

void PrintTable(const store::Trace& trace, const std::vector<Row>& rows) {
  const double per_token = base::Ratio(trace.neurons.size(), trace.tokens);
  std::printf("%lld tokens; each needs %.0f of %lld neurons (%.1f%%)\n\nmemory  neurons",
              static_cast<long long>(trace.tokens), per_token,
              static_cast<long long>(trace.num_hidden_layers) * trace.intermediate_size,
              100 * per_token / trace.num_hidden_layers / trace.intermediate_size);
  for (const CachePolicy policy : kCachePolicies)
    std::printf("  %7s", std::string(CachePolicyName(policy)).c_str());
  std::printf("  window of\n");
  for (const Row& row : rows) {
    int window = 0;
    std::printf("%5.0f%%  %7zu", 100 * row.share, row.neurons);
    for (const offline::ReplayResult& r : row.results) {
      std::printf("  %6.1f%%", 100 * r.warm.rate());
      window = std::max(window, r.window);
    }
    std::printf("  %9d\n", window);
  }
  std::printf(
      "\nneeded neurons that were in the cache, without the first %lld tokens, while it fills; "
      "with "
      "them:\n",
      static_cast<long long>(trace.tokens / 10));
  for (const Row& row : rows) {
    std::printf("%5.0f%%  %7zu", 100 * row.share, row.neurons);
    for (const offline::ReplayResult& r : row.results)
      std::printf("  %6.1f%%", 100 * offline::HitCount{.needed = r.cold.needed + r.warm.needed,
                                                       .hits = r.cold.hits + r.warm.hits}
                                         .rate());
    std::printf("\n");
  }
  std::printf(
      "window: the largest number of tokens whose neurons always fit; belady: knows the future, "
      "and "
      "may let\na neuron pass without keeping it, as ours may\n");
}

Status WritePlot(const std::string& path, const std::vector<Row>& rows) {
  charts::Chart plot{
      .title = "Needed neurons found in memory",
      .x = {.label = "neurons that fit in memory", .percent = true, .min = 0, .max = 1},
      .y = {.label = "hit rate", .percent = true, .min = 0, .max = 1}};
  // In the order of kCachePolicies, two of which often coincide.
  static constexpr const char* kColors[kPolicies] = {"#8c8c8c", "#e69f00", "#56b4e9",
                                                     "#009e73", "#d55e00", "#000000"};
  for (std::size_t i = 0; i < kPolicies; ++i) {
    charts::Series series{.label = std::string(CachePolicyName(kCachePolicies[i])),
                          .color = kColors[i],
                          .dashed = kCachePolicies[i] == CachePolicy::kBelady ||
                                    kCachePolicies[i] == CachePolicy::kHeat};
    for (const Row& row : rows) series.points.emplace_back(row.share, row.results[i].warm.rate());
    plot.series.push_back(std::move(series));
  }
  ASSIGN_OR_RETURN(const auto file, base::FileWriter::Create(path));
  RETURN_IF_ERROR(file->Append(charts::RenderPicture(std::vector{plot}, 1)));
  return file->Commit();
}

}  // namespace

Status PlanReplay(const ReplayOptions& o) {
  RETURN_IF_ERROR(CheckPlotPath(o.plot));
  ASSIGN_OR_RETURN(const std::vector<double> shares, ParseShares(o.memory));
  ASSIGN_OR_RETURN(const store::Trace trace, store::ReadTrace(o.trace));
  if (trace.tokens == 0 || trace.neurons.empty())
    return base::InvalidArgument(o.trace, ": the trace holds no whole token that needs a neuron");
  const offline::Replay replay(trace, {.half_life = o.half_life});
  const std::vector<Row> rows = ReplayAll(replay, shares);
  if (!o.plot.empty()) RETURN_IF_ERROR(WritePlot(o.plot, rows));
  if (o.json) {
    PrintJson(Json::Object{{"tokens", trace.tokens},
                           {"num_hidden_layers", trace.num_hidden_layers},
                           {"intermediate_size", trace.intermediate_size},
                           {"needed", trace.neurons.size()},
                           {"half_life", o.half_life},
                           {"memory", RowsJson(rows)}});
    return OkStatus();
  }
  PrintTable(trace, rows);
  return OkStatus();
}

void AddReplayOptions(const OptionSet& set, ReplayOptions& o) {
  set.Add("--replay", o.trace, "Trace to replay against caches of neurons");
  set.Add("--memory", o.memory, "Sizes of the cache, as shares of all neurons (--replay)")
      .ShowDefault();
  set.Add("--half-life", DoubleValue{&o.half_life, 0.1, 1e9},
          "Tokens after which a use counts half, in ours (--replay)")
      .ShowDefault();
}

}  // namespace thermocline::tools
